//! A MySQL of our own, where it can be had: no stable Debian has one.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use super::account::Account;
use super::given;
use super::mysql_program::{self, Program};
use super::mysqld::Home;
use super::{Server, Service};
use crate::interrupt;
use crate::process::{self, bound_to_us};
use crate::side_by_side::Starter;

/// Whether there is one: the only service that a run goes on without. Shown to people.
#[derive(Debug, Clone)]
pub(crate) enum Mysql {
    /// By the environment.
    Given,
    /// A program of this version.
    Found(String),
    /// The reason.
    Missing(String),
    /// This run needs none.
    NotAsked,
}

impl Mysql {
    /// Looks for it, and downloads it where that is possible.
    pub(crate) fn find() -> Result<Self> {
        let found = match given::read(Service::Mysql.variable())? {
            Some(_) => Self::Given,
            None => match mysql_program::get() {
                Ok(program) => Self::Found(program.version.clone()),
                Err(reason) => Self::Missing(reason.to_owned()),
            },
        };
        // A signal ends the run; it does not make MySQL missing.
        interrupt::check()?;
        Ok(found)
    }

    pub(crate) fn is_there(&self) -> bool {
        matches!(self, Self::Given | Self::Found(_))
    }
}

impl fmt::Display for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => write!(f, "MySQL of {}: run", Service::Mysql.variable()),
            Self::Found(version) => write!(f, "MySQL {version}: run"),
            Self::Missing(reason) => write!(f, "MySQL: not run, because {reason}"),
            Self::NotAsked => f.write_str("MySQL: not run, because it was not asked for"),
        }
    }
}

/// Makes a data directory and starts its server.
pub(super) fn start(run_dir: &Path, starter: &Starter) -> Result<Server> {
    let program = match mysql_program::get() {
        Ok(program) => program,
        Err(reason) => bail!("{reason}"),
    };
    // No package made a user for it; MariaDB's may be there.
    let home = Home::new("MySQL", &["mysql", "nobody"], run_dir.join("mysql"))?;
    let program = match home.account {
        Account::Ourselves => program.clone(),
        Account::Other(_) => within_reach(program, run_dir.join("mysql-program"))?,
    };

    let mut initialize = home.apply(server(&program, Command::new));
    initialize.arg("--initialize-insecure").arg(home.data());
    process::run_logged(
        "mysqld --initialize-insecure",
        &mut initialize,
        &run_dir.join("mysql-initialize.log"),
    )?;

    let command = || server(&program, |loader| bound_to_us(loader, Signal::SIGTERM));
    home.start(starter, command, &run_dir.join("mysql.log"))
}

/// The server, run by the loader and with the libraries that it was built for.
fn server(program: &Program, command: impl Fn(PathBuf) -> Command) -> Command {
    let mut server = command(program.loader());
    server.arg("--library-path").arg(program.libraries()).arg(program.server()).arg("--no-defaults");
    for (option, dir) in [("--basedir=", "usr"), ("--lc-messages-dir=", "usr/share/mysql")] {
        let mut option = OsString::from(option);
        option.push(program.dir().join(dir));
        server.arg(option);
    }
    // No second protocol on another port, and no directory for files of its own.
    server.args(["--mysqlx=OFF", "--secure-file-priv=NULL"]);
    server
}

/// The cache may lie where only we may enter. Links cost nothing; a copy is for another file system.
fn within_reach(program: &Program, dir: PathBuf) -> Result<Program> {
    let copy = |how: &str| {
        let log = dir.with_extension("log");
        let mut copy = Command::new("cp");
        copy.args(["-a", how, "--"]).arg(program.dir()).arg(&dir);
        let copied = process::run_logged("cp", &mut copy, &log);
        if copied.is_err() && dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        copied
    };
    copy("--link").or_else(|_| copy("--reflink=auto"))?;
    Ok(program.moved(dir))
}
