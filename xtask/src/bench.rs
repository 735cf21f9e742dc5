//! `cargo xtask bench`: the benchmark, against real services.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::services::Services;
use crate::{cargo, process};

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Passed on to the benchmark, such as `--rounds 5 --records 500000`.
    #[arg(last = true, value_name = "BENCH ARGS")]
    extra: Vec<String>,
}

/// Round trips between process and database that are compared, in microseconds.
const ROUND_TRIPS_US: [&str; 2] = ["0", "500"];

/// Builds in release mode, starts the services, compares, stops the services.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut build = cargo::command("build");
    build.args(["--release", "--locked", "-p", "oncebox-cli", "-p", "oncebox-bench"]);
    if !process::run(&mut build)?.success() {
        bail!("the benchmark does not build");
    }
    let built = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| cargo::workspace().join("target"), PathBuf::from)
        .join("release");
    let services = Services::start()?;
    for round_trip in ROUND_TRIPS_US {
        let mut compare = Command::new(built.join("oncebox-bench"));
        compare
            .args(["compare", "--round-trip-us", round_trip, "--daemon"])
            .arg(built.join("oncebox"))
            .args(&args.extra)
            .envs(services.env());
        let status = process::run(&mut compare)?;
        if !status.success() {
            bail!("the benchmark failed ({status})");
        }
    }
    Ok(())
}
