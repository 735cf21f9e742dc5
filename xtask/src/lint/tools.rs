//! Tools that are not part of the toolchain: pinned, and built into a directory of our own when they are missing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{cargo, packages, process};

/// A crate with one program.
pub(crate) struct Tool {
    package: &'static str,
    program: &'static str,
    version: &'static str,
}

/// Checks licences, duplicates and origins of dependencies.
pub(crate) const DENY: Tool = Tool { package: "cargo-deny", program: "cargo-deny", version: "0.20.2" };
/// Checks the spelling.
pub(crate) const TYPOS: Tool = Tool { package: "typos-cli", program: "typos", version: "1.52.0" };

/// The tool at the root of the workspace; installed if it must be.
pub(crate) fn command(tool: &Tool) -> Result<Command> {
    let mut command = Command::new(install(tool)?);
    command.current_dir(cargo::workspace());
    Ok(command)
}

/// The version is part of the path: another one is another tool.
fn install(tool: &Tool) -> Result<PathBuf> {
    let name = format!("{}-{}", tool.package, tool.version);
    let root = cargo::target_dir().join("tools").join(&name);
    let program = root.join("bin").join(tool.program);
    if packages::is_program(&program) {
        return Ok(program);
    }
    let _one_at_a_time = packages::lock()?;
    if packages::is_program(&program) {
        return Ok(program);
    }
    eprintln!("xtask: {name} is missing: building it");
    fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
    let mut build = cargo::command("install");
    // Without optimisation and debug information: it takes longer to build than ever to run.
    build.env("CARGO_PROFILE_DEV_DEBUG", "0");
    build.args(["--debug", "--locked", "--quiet", "--no-track", tool.package, "--version", tool.version]);
    let status = process::run(build.arg("--root").arg(&root).env_remove("CARGO_TARGET_DIR"))?;
    if !status.success() || !packages::is_program(&program) {
        bail!("{name} cannot be installed ({status}); without it the check cannot be made");
    }
    Ok(program)
}
