//! `cargo xtask simulate`: random histories of the engine and the relay in a simulated world.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{cargo, process};

/// How many histories `cargo xtask test` runs, in about a minute.
const IN_TESTS: u64 = 10_000;

/// Arguments of `cargo xtask simulate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many histories.
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only the history of this seed, whole; if it fails, made short.
    #[arg(long)]
    seed: Option<u64>,
    /// Put each known mistake back and say after how many seeds it is found.
    #[arg(long)]
    mistakes: bool,
}

/// Builds the simulation in release mode and runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut pass = vec!["--seeds".to_owned(), args.seeds.to_string()];
    pass.extend(["--from".to_owned(), args.from.to_string()]);
    pass.extend(args.seed.into_iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
    pass.extend(args.mistakes.then(|| "--mistakes".to_owned()));
    let status = process::run(&mut simulation(&pass, args.mistakes))?;
    if !status.success() {
        bail!("the simulation has found something ({status})");
    }
    Ok(())
}

/// What `cargo xtask test` runs.
pub(crate) fn in_tests() -> Command {
    simulation(&["--seeds".to_owned(), IN_TESTS.to_string()], false)
}

fn simulation(pass: &[String], mistakes: bool) -> Command {
    let mut simulation = cargo::command("run");
    // No package is named, so that the dependencies are built with the same features as for `cargo run --release`.
    simulation.args(["--release", "--locked", "--quiet", "--bin", "simulate"]);
    if mistakes {
        simulation.args(["--features", "oncebox-simulation/mistakes"]);
    }
    simulation.arg("--").args(pass);
    simulation
}
