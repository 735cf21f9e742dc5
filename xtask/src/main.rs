//! Developer tasks, run as `cargo xtask <task>`.

mod bench;
mod cargo;
mod interrupt;
mod lint;
mod packages;
mod process;
mod serve;
mod services;
mod side_by_side;
mod simulate;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer tasks of oncebox.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every test, against real servers started for this run: PostgreSQL, MariaDB, MongoDB, Kafka, RabbitMQ, and MySQL where it can be had.
    Test(test::Args),
    /// Check format, spelling, dependencies, lints, documentation and every feature alone.
    Lint,
    /// Compare oncebox with one transaction per message written by hand, on a real PostgreSQL and a real Kafka.
    Bench(bench::Args),
    /// Run simulated histories of the engine and the relay; needs no service.
    Simulate(simulate::Args),
    /// Start the servers of the tests, print how to reach them, and stop them on Ctrl-C.
    Services,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = interrupt::install().and_then(|()| match cli.task {
        Task::Test(args) => test::run(&args),
        Task::Lint => lint::run(),
        Task::Bench(args) => bench::run(&args),
        Task::Simulate(args) => simulate::run(&args),
        Task::Services => serve::run(),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(error.downcast_ref::<interrupt::Interrupted>().map_or(1, |i| i.exit_code()))
        }
    }
}
