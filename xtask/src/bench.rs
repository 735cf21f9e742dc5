//! `cargo xtask bench`: the benchmark, against real services.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::services::Services;
use crate::{cargo, process};

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this part.
    #[arg(value_enum)]
    part: Option<Part>,
    /// Passed on to the benchmark, such as `inbox -- --rounds 5 --records 500000`.
    #[arg(last = true, value_name = "BENCH ARGS")]
    extra: Vec<String>,
}

/// The parts of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The inbox against one transaction per message written by hand.
    Inbox,
    /// The relay against a bare producer.
    Relay,
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
    let benchmark = |args: &[&OsStr], extra: &[String]| {
        let mut part = Command::new(built.join("oncebox-bench"));
        let status = process::run(part.args(args).args(extra).envs(services.env()))?;
        if !status.success() {
            bail!("the benchmark failed ({status})");
        }
        Ok(())
    };
    let daemon = built.join("oncebox");
    if args.part != Some(Part::Relay) {
        for round_trip in ROUND_TRIPS_US {
            let compare = ["compare", "--round-trip-us", round_trip, "--daemon"].map(OsStr::new);
            benchmark(&[&compare[..], &[daemon.as_os_str()]].concat(), &args.extra)?;
        }
    }
    if args.part != Some(Part::Inbox) {
        // What is passed on belongs to the inbox unless the relay was asked for alone.
        let extra = if args.part.is_some() { &args.extra[..] } else { &[] };
        benchmark(&[OsStr::new("relay")], extra)?;
    }
    Ok(())
}
