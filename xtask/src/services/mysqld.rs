//! What a MariaDB and a MySQL of our own have in common: options, and when they are ready.
//!
//! Both come with their messages in many languages. `SET lc_messages = 'de_DE'` makes those of one session German: that
//! is how tests show that errors are told apart by their numbers.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::account::Account;
use super::{Server, ports};
use crate::process::Daemon;
use crate::side_by_side::Starter;

const READY_LIMIT: Duration = Duration::from_secs(60);
/// A superuser without a password, on loopback only. The one that comes with the data is `root@localhost`, and whether
/// 127.0.0.1 has that name is up to the machine.
const USERS: &str = "CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';\n\
                     GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n";

/// A data directory, filled or to be filled, and who owns it.
#[derive(Debug)]
pub(super) struct Home {
    name: &'static str,
    dir: PathBuf,
    pub(super) account: Account,
}

impl Home {
    /// A new one in the directory of the run.
    pub(super) fn new(name: &'static str, users: &[&str], dir: PathBuf) -> Result<Self> {
        fs::create_dir(&dir)?;
        let account = Account::choose(name, users, &dir)?;
        fs::write(dir.join("users.sql"), USERS)?;
        Ok(Self { name, dir, account })
    }

    pub(super) fn data(&self) -> OsString {
        let mut option = OsString::from("--datadir=");
        option.push(self.dir.join("data"));
        option
    }

    /// The command as the owner.
    pub(super) fn apply(&self, command: Command) -> Command {
        self.account.apply(command, &self.dir)
    }

    /// Starts the server that `command` makes, with options of its own, and waits until it answers.
    pub(super) fn start(
        &self,
        starter: &Starter,
        command: impl Fn() -> Command,
        log: &Path,
    ) -> Result<Server> {
        ports::with_free(|[port]| {
            let mut command = self.apply(command());
            command.arg(self.data()).arg(format!("--port={port}"));
            command.args(["--bind-address=127.0.0.1", "--skip-name-resolve=ON", "--max-connections=500"]);
            // In the data directory: the usual place is not ours.
            command.args(["--socket=server.sock", "--pid-file=server.pid"]);
            // Durable as in production, whatever a version's default.
            command.arg("--innodb-flush-log-at-trx-commit=1");
            let mut users = OsString::from("--init-file=");
            users.push(self.dir.join("users.sql"));
            command.arg(users);
            let mut daemon = Daemon::spawn(starter, self.name, command, Signal::SIGTERM, log)?;
            // The log comes first: another server could have taken the port.
            let ready = |daemon: &Daemon| daemon.has_logged("ready for connections");
            daemon.wait_until(READY_LIMIT, |daemon| ready(daemon) && ports::accepts(port))?;
            Ok(Server { daemon, helper: None, port, value: format!("mysql://root@127.0.0.1:{port}/mysql") })
        })
    }
}
