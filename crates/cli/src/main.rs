//! The `oncebox` command. The only crate that reads files, the environment and signals.

// They panic when nobody reads any more: `output::line` and `output::note` do not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod cluster;
mod commands;
mod demo;
mod exit;
#[cfg(feature = "failpoints")]
mod failpoint;
mod http;
mod interrupt;
mod load;
mod logging;
mod output;
mod panics;
mod stores;
mod versions;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use exit::{Answer, CommandResult, Exit};

fn main() -> ExitCode {
    let cli = Cli::parse();
    panics::install(cli.log_format);
    #[cfg(feature = "failpoints")]
    failpoint::install();
    if let Err(error) = logging::init(cli.log_format, cli.log.as_deref(), &cli.command) {
        output::note(&format!("error: {error}"));
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("error: cannot start: {error}"));
            return Exit::Data.into();
        }
    };
    let result = runtime.block_on(dispatch(cli));
    // A librdkafka call may still hang on an unreachable broker; the answer is known, so do not wait for it.
    runtime.shutdown_background();
    match result {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => Exit::Negative.into(),
        Err(failure) => {
            output::note(&format!("error: {failure}"));
            failure.exit.into()
        }
    }
}

async fn dispatch(cli: Cli) -> CommandResult {
    let file = &cli.config;
    match cli.command {
        Command::Demo(args) => demo::run(args).await,
        Command::Init { force } => commands::init::run(file, force),
        Command::Check { output } => commands::check::run(file, output.output).await,
        Command::Migrate { action } => commands::migrate::run(file, action).await,
        Command::Run => commands::run::run(file).await,
        Command::Status { output } => commands::status::run(file, output.output).await,
        Command::Dead { action } => commands::dead::run(file, action).await,
        Command::Outbox { action } => commands::outbox::run(file, action).await,
        Command::Position { action } => commands::position::run(file, action).await,
        Command::Purge { dry_run, output } => commands::purge::run(file, dry_run, output.output).await,
        Command::Completions { shell } => commands::completions::run(shell),
    }
}
