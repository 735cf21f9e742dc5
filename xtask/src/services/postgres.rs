//! A PostgreSQL of our own: durable as in production, trusting everyone on loopback.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::account::Account;
use super::{Server, Service, ports};
use crate::packages;
use crate::process::{self, Daemon, bound_to_us};
use crate::side_by_side::Starter;

const READY_LIMIT: Duration = Duration::from_secs(60);

/// Makes a database cluster and starts its server.
pub(super) fn start(run_dir: &Path, starter: &Starter) -> Result<Server> {
    let bin = packages::find_or_install(
        find_bin,
        "postgresql",
        "PostgreSQL (initdb and postgres, on PATH or in /usr/lib/postgresql/*/bin)",
        &format!(", or set {} to the URL of a running server's superuser", Service::Postgres.variable()),
    )?;
    let home = run_dir.join("postgres");
    fs::create_dir(&home)?;
    let account = Account::choose("PostgreSQL", &["postgres"], &home)?;
    let data = home.join("data");

    let mut initdb = account.apply(Command::new(bin.join("initdb")), &home);
    initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
    // The new directory need not survive a power cut; what the server writes later is synced.
    initdb.arg("--no-sync");
    process::run_logged("initdb", &mut initdb, &run_dir.join("initdb.log"))?;

    ports::with_free(|[port]| {
        configure(&data, port)?;
        // SIGINT is the fast stop: it does not wait for clients to leave.
        let mut command = account.apply(bound_to_us(bin.join("postgres"), Signal::SIGINT), &home);
        command.arg("-D").arg(&data);
        let log = run_dir.join("postgres.log");
        let mut daemon = Daemon::spawn(starter, "PostgreSQL", command, Signal::SIGINT, &log)?;
        daemon.wait_until(READY_LIMIT, |daemon| is_ready(&data, daemon.pid()))?;
        let value = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        Ok(Server { daemon, helper: None, port, value })
    })
}

/// PATH first, so that a developer can choose; then the newest of Debian's.
fn find_bin() -> Option<PathBuf> {
    let complete =
        |dir: &Path| ["initdb", "postgres"].iter().all(|name| packages::is_program(&dir.join(name)));
    let on_path = packages::on_path("initdb").and_then(|file| Some(file.parent()?.to_owned()));
    if let Some(dir) = on_path.filter(|dir| complete(dir)) {
        return Some(dir);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let number = |dir: &Path| dir.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let mut dirs: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
    dirs.sort_by_key(|dir| number(dir));
    dirs.iter().rev().map(|dir| dir.join("bin")).find(|dir| complete(dir))
}

fn configure(data: &Path, port: u16) -> Result<()> {
    // Appended: the last value of a setting counts.
    let mut conf = File::options().append(true).open(data.join("postgresql.conf"))?;
    write!(
        conf,
        "\nlisten_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\n\
         fsync = on\nsynchronous_commit = on\nmax_connections = 300\n"
    )?;
    Ok(())
}

/// The server keeps its state in this file. Asking the port instead could reach another server, one that took
/// the port first.
fn is_ready(data: &Path, pid: u32) -> bool {
    let text = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(pid.to_string().as_str()) && lines.nth(6) == Some("ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_what_our_own_server_says() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("postmaster.pid");
        assert!(!is_ready(dir.path(), 42));
        fs::write(&file, "42\n/data\n1700000000\n5432\n\n127.0.0.1\n  1 2\nstarting\n").expect("a file");
        assert!(!is_ready(dir.path(), 42));
        fs::write(&file, "42\n/data\n1700000000\n5432\n\n127.0.0.1\n  1 2\nready   \n").expect("a file");
        assert!(is_ready(dir.path(), 42));
        assert!(!is_ready(dir.path(), 43));
    }
}
