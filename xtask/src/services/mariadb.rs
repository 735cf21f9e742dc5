//! A MariaDB of our own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::mysqld::Home;
use super::{Server, Service};
use crate::packages;
use crate::process::{self, bound_to_us};
use crate::side_by_side::Starter;

/// Makes a data directory and starts its server.
pub(super) fn start(run_dir: &Path, starter: &Starter) -> Result<Server> {
    let programs = packages::find_or_install(
        Programs::find,
        "mariadb-server",
        "MariaDB (mariadbd and mariadb-install-db, on PATH, in /usr/sbin or in /usr/bin)",
        &format!(", or set {} to the URL of a running server's superuser", Service::Mariadb.variable()),
    )?;
    let home = Home::new("MariaDB", &["mysql"], run_dir.join("mariadb"))?;

    let mut install = home.apply(Command::new(&programs.install_db));
    install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
    install.arg(home.data());
    process::run_logged("mariadb-install-db", &mut install, &run_dir.join("mariadb-install-db.log"))?;

    let command = || {
        let mut command = bound_to_us(&programs.server, Signal::SIGTERM);
        command.arg("--no-defaults");
        command
    };
    home.start(starter, command, &run_dir.join("mariadb.log"))
}

struct Programs {
    server: PathBuf,
    install_db: PathBuf,
}

impl Programs {
    /// PATH first, so that a developer can choose. Debian's server is where only root's PATH leads.
    fn find() -> Option<Self> {
        let find = |name: &str, dir: &str| {
            let usual = Path::new(dir).join(name);
            packages::on_path(name).or_else(|| packages::is_program(&usual).then_some(usual))
        };
        Some(Self {
            server: find("mariadbd", "/usr/sbin")?,
            install_db: find("mariadb-install-db", "/usr/bin")?,
        })
    }
}
