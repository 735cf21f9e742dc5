//! MySQL's program files: out of the packages of Debian's unstable distribution, unpacked beside the system, never
//! installed. Downloaded once and kept for later runs.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};

use super::debian_unstable;
use crate::packages;

/// The name in the cache. A directory of this name is taken as complete; remove it to get the version of today.
const NAME: &str = "mysql-unstable";
const PACKAGE: &str = "mysql-server-core";

/// The unpacked packages: a server with everything down to the C library.
#[derive(Debug, Clone)]
pub(super) struct Program {
    dir: PathBuf,
    machine: &'static Machine,
    /// Such as `9.7.4`.
    pub(super) version: String,
}

/// Where Debian keeps the loader and the libraries.
#[derive(Debug)]
struct Machine {
    arch: &'static str,
    loader: &'static str,
    libraries: &'static str,
}

const MACHINES: [Machine; 2] = [
    Machine {
        arch: "x86_64",
        loader: "usr/lib64/ld-linux-x86-64.so.2",
        libraries: "usr/lib/x86_64-linux-gnu",
    },
    Machine {
        arch: "aarch64",
        loader: "usr/lib/ld-linux-aarch64.so.1",
        libraries: "usr/lib/aarch64-linux-gnu",
    },
];

impl Program {
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn loader(&self) -> PathBuf {
        self.dir.join(self.machine.loader)
    }

    pub(super) fn libraries(&self) -> PathBuf {
        self.dir.join(self.machine.libraries)
    }

    pub(super) fn server(&self) -> PathBuf {
        self.dir.join("usr/sbin/mysqld")
    }

    /// The same files in another place.
    pub(super) fn moved(&self, dir: PathBuf) -> Self {
        Self { dir, ..self.clone() }
    }

    fn at(dir: PathBuf, machine: &'static Machine) -> Result<Self> {
        let mut program = Self { dir, machine, version: String::new() };
        let mut command = Command::new(program.loader());
        command.arg("--library-path").arg(program.libraries()).arg(program.server()).arg("--version");
        let output = command.output().context("mysqld --version")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        program.version = version(&text).with_context(|| {
            let said = text + &String::from_utf8_lossy(&output.stderr);
            format!("what was unpacked does not run here ({}): {}", output.status, said.trim())
        })?;
        Ok(program)
    }
}

/// The program, or why there is none. Asked for before the tests are built and again when it is started; what was
/// found out the first time is what counts.
pub(super) fn get() -> Result<&'static Program, &'static str> {
    static FOUND: OnceLock<Result<Program, String>> = OnceLock::new();
    FOUND.get_or_init(|| find().map_err(|error| format!("{error:#}"))).as_ref().map_err(String::as_str)
}

fn find() -> Result<Program> {
    let machine = MACHINES.iter().find(|machine| machine.arch == ARCH);
    let machine = machine.with_context(|| format!("no MySQL is known for {ARCH}"))?;
    let cache = packages::cache_dir()?;
    let dir = cache.join(NAME);
    if !dir.is_dir() {
        let _one_at_a_time = packages::lock()?;
        if !dir.is_dir() {
            eprintln!("xtask: downloading MySQL into {} (65 MB, once)", cache.display());
            debian_unstable::unpack(PACKAGE, remove_what_is_not_needed, &cache, NAME)?;
        }
    }
    Program::at(dir, machine)
}

/// Half of it: Perl, other programs, documentation.
fn remove_what_is_not_needed(root: &Path) -> Result<()> {
    let bin = root.join("usr/bin");
    if bin.is_dir() {
        fs::remove_dir_all(bin)?;
    }
    for entry in fs::read_dir(root.join("usr/share"))? {
        let entry = entry?;
        if entry.file_name() != "mysql" && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// `9.7.4` of `/…/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))`.
fn version(text: &str) -> Option<String> {
    let version = text.split_once("Ver ")?.1.split([' ', '-']).next()?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions() {
        let text = "/x/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))\n";
        assert_eq!(version(text).as_deref(), Some("9.7.4"));
        assert_eq!(version("error while loading shared libraries"), None);
    }
}
