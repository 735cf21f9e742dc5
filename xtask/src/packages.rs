//! Missing programs: found on PATH, installed on a Debian where we may, named in a clear message elsewhere.

use std::env;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use nix::unistd::Uid;

use crate::process;

/// The full path of a program on PATH.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|file| is_program(file))
}

/// Whether this is a file that can be executed.
pub(crate) fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Looks for something, and installs the Debian package that brings it when it is not there and we are root.
///
/// `what` says what was looked for, and where; `instead` how to do without.
pub(crate) fn find_or_install<T>(
    find: impl Fn() -> Option<T>,
    package: &str,
    what: &str,
    instead: &str,
) -> Result<T> {
    if let Some(found) = find() {
        return Ok(found);
    }
    let missing = format!("{what} is missing. Install it (Debian: apt-get install {package}){instead}.");
    if !Uid::effective().is_root() || on_path("apt-get").is_none() {
        bail!("{missing}");
    }
    let _one_at_a_time = lock()?;
    // Another run may have installed it while this one waited.
    if let Some(found) = find() {
        return Ok(found);
    }
    eprintln!("xtask: {what} is missing: installing the package {package}");
    apt_install(package).with_context(|| missing.clone())?;
    find().with_context(|| format!("{missing} The package {package} is installed and did not bring it"))
}

/// Where downloads are kept between runs.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .context("no directory for downloads: set HOME or XDG_CACHE_HOME")?;
    let dir = base.join("oncebox");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

/// Held while something is installed or downloaded: a second run on the machine waits, then finds it there.
pub(crate) fn lock() -> Result<File> {
    let path = cache_dir()?.join("install.lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("xtask: waiting for another run that is installing something");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

fn apt_install(package: &str) -> Result<()> {
    let _no_servers = KeepServersDown::new()?;
    for args in [&["update"][..], &["install", "--no-install-recommends", package][..]] {
        let mut command = Command::new("apt-get");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["-y", "-q", "-o", "DPkg::Lock::Timeout=300"])
            .args(args)
            .current_dir("/")
            // Standard output is for data.
            .stdout(io::stderr());
        let status = process::run(&mut command)?;
        if !status.success() {
            bail!("apt-get {} failed ({status})", args.join(" "));
        }
    }
    Ok(())
}

/// Debian starts a server when it installs one, on its usual port, unless this file says no.
struct KeepServersDown {
    ours: bool,
}

impl KeepServersDown {
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn new() -> Result<Self> {
        let file = File::options().write(true).create_new(true).mode(0o755).open(Self::POLICY);
        match file {
            Ok(mut file) => {
                let guard = Self { ours: true };
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                Ok(guard)
            }
            // Somebody's own policy: leave it alone.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { ours: false }),
            Err(error) => Err(error).with_context(|| format!("cannot write {}", Self::POLICY)),
        }
    }
}

impl Drop for KeepServersDown {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        if let Err(error) = fs::remove_file(Self::POLICY) {
            eprintln!("xtask: cannot remove {}: {error}", Self::POLICY);
        }
    }
}
