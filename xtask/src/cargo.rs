//! Cargo, called from a program that cargo itself started.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The profile of tests and lints. See `Cargo.toml`.
pub(crate) const PROFILE: &str = "bench";

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Where cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// A cargo command at the root of the workspace.
pub(crate) fn command(subcommand: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    forget_ourselves(&mut command);
    command.current_dir(workspace()).arg(subcommand);
    command
}

/// Removes what the outer `cargo run` says about the xtask package: build scripts that watch these variables would otherwise run
/// again at every change between `cargo xtask test` and `cargo test`, and a test would take our package for its own.
pub(crate) fn forget_ourselves(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}
