//! `cargo xtask lint`: everything that can be said about a change without running it.
//!
//! The quick steps come first. Those that compile share one profile with `cargo xtask test` and the demo, so that the C code in
//! the dependencies is built once.

mod features;
mod tools;

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::cargo::{self, PROFILE};
use crate::process;

/// Runs every check; the first one that fails ends the run.
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    step("format", cargo::command("fmt").args(["--all", "--check"]))?;
    step("spelling", &mut tools::command(&tools::TYPOS)?)?;
    // Advisories are left out: their database cannot be fetched everywhere, and a new entry is not this change's fault.
    let deny = ["--locked", "--all-features", "check", "bans", "licenses", "sources"];
    step("dependencies", tools::command(&tools::DENY)?.args(deny))?;
    let everything = ["--workspace", "--all-features", "--locked", "--profile", PROFILE];
    let clippy = &mut cargo::command("clippy");
    step("clippy", clippy.args(everything).args(["--all-targets", "--", "-D", "warnings"]))?;
    let doc = &mut cargo::command("doc");
    step("documentation", doc.args(everything).arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings"))?;
    for selection in features::selections()? {
        let clippy = &mut cargo::command("clippy");
        clippy.args(selection.args()).args(["--locked", "--profile", PROFILE, "--", "-D", "warnings"]);
        step(&selection.to_string(), clippy)?;
    }
    eprintln!("xtask: every check passed, in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn step(name: &str, command: &mut Command) -> Result<()> {
    eprintln!("xtask: {name}");
    let status = process::run(command)?;
    if !status.success() {
        bail!("lint failed at: {name} ({status})");
    }
    Ok(())
}
