//! A PostgreSQL of our own: durable as in production, trusting everyone on loopback.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};

use super::{POSTGRES, ports};
use crate::process::{self, Daemon};
use crate::{packages, process::bound_to_us};

const READY_LIMIT: Duration = Duration::from_secs(60);

/// A running server.
#[derive(Debug)]
pub(super) struct Postgres {
    daemon: Daemon,
    port: u16,
}

impl Postgres {
    pub(super) fn start(run_dir: &Path) -> Result<Self> {
        let bin = packages::find_or_install(
            find_bin,
            "postgresql",
            "PostgreSQL (initdb and postgres, on PATH or in /usr/lib/postgresql/*/bin)",
            &format!(", or set {POSTGRES} to the URL of a running server's superuser"),
        )?;
        let home = run_dir.join("postgres");
        fs::create_dir(&home)?;
        let account = Account::choose(&home)?;
        let data = home.join("data");

        let mut initdb = account.apply(Command::new(bin.join("initdb")), &home);
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
        // The new directory need not survive a power cut; what the server writes later is synced.
        initdb.arg("--no-sync");
        process::run_logged("initdb", &mut initdb, &run_dir.join("initdb.log"))?;

        ports::with_free(|[port]| {
            configure(&data, port)?;
            let command = bound_to_us(bin.join("postgres"), Signal::SIGINT);
            let mut command = account.apply(command, &home);
            // SIGINT is the fast stop: it does not wait for clients to leave.
            let daemon = Daemon::spawn(
                "PostgreSQL",
                command.arg("-D").arg(&data),
                Signal::SIGINT,
                &run_dir.join("postgres.log"),
            )?;
            let mut postgres = Self { daemon, port };
            postgres.daemon.wait_until(READY_LIMIT, |daemon| is_ready(&data, daemon.pid()))?;
            Ok(postgres)
        })
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    pub(super) fn check_alive(&mut self) -> Result<()> {
        self.daemon.check_alive()
    }
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

/// Whom the server runs as: it refuses to be root.
enum Account {
    Ourselves,
    Other(User),
}

impl Account {
    /// Root gives `home` to the user `postgres`.
    fn choose(home: &Path) -> Result<Self> {
        if !Uid::effective().is_root() {
            return Ok(Self::Ourselves);
        }
        let user = User::from_name("postgres")?.context(
            "PostgreSQL does not run as root, and there is no user `postgres` to run it as: create one, or run \
             the tests as another user",
        )?;
        if let Some(closed) = home.ancestors().skip(1).find(|dir| !anyone_may_enter(dir)) {
            bail!(
                "PostgreSQL runs as the user `postgres`, who may not enter {}: set TMPDIR to a directory that \
                 everyone may enter, such as /tmp",
                closed.display()
            );
        }
        chown(home, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        Ok(Self::Other(user))
    }

    /// The command as this user, from a directory that the user may enter.
    fn apply(&self, mut command: Command, home: &Path) -> Command {
        command.current_dir(home);
        if let Self::Other(user) = self {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

fn anyone_may_enter(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|meta| meta.mode() & 0o001 != 0)
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
