//! The `oncebox` command. The only crate that reads files, the environment and signals.

// They panic when nobody reads any more: `output::line` and `output::note` do not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod cluster;
mod commands;
mod dashboard;
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
use logging::LogLevel;

fn main() -> ExitCode {
    let cli = Cli::parse();
    panics::install(cli.log_format);
    #[cfg(feature = "failpoints")]
    failpoint::install();
    let level = match logging::init(cli.log_format, cli.log.as_deref(), &cli.command) {
        Ok(level) => level,
        Err(error) => {
            output::note(&format!("error: {error}"));
            return Exit::Usage.into();
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("error: cannot start: {error}"));
            return Exit::Data.into();
        }
    };
    let result = runtime.block_on(dispatch(cli, level));
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

async fn dispatch(cli: Cli, level: LogLevel) -> CommandResult {
    let file = &cli.config;
    let who = commands::audit::operator_name(&cli.by);
    match cli.command {
        Command::Demo(args) => demo::run(args).await,
        Command::Init { force } => commands::init::run(file, force),
        Command::Check { output } => commands::check::run(file, output.output).await,
        Command::Migrate { action } => commands::migrate::run(file, action).await,
        Command::Run => commands::run::run(file, level).await,
        Command::Dashboard { listen } => commands::dashboard::run(file, listen).await,
        Command::Status { watch, output } => commands::status::run(file, watch, output.output).await,
        Command::Dead { action } => commands::dead::run(file, &who, action).await,
        Command::Outbox { action } => commands::outbox::run(file, &who, action).await,
        Command::Position { action } => commands::position::run(file, &who, action).await,
        Command::Pause { consumer, reason, force, output } => {
            let asked = commands::pause::Asked::pause(&cli.by, reason.as_deref(), force);
            commands::pause::run(file, &who, consumer, asked, output.output).await
        }
        Command::Resume { consumer, output } => {
            commands::pause::run(file, &who, consumer, commands::pause::Asked::Resume, output.output).await
        }
        Command::Find { id, consumer, tenant, output } => {
            commands::find::run(file, id, consumer, tenant, output.output).await
        }
        Command::Audit(args) => commands::audit::run(file, args).await,
        Command::Purge { dry_run, output } => commands::purge::run(file, &who, dry_run, output.output).await,
        Command::Completions { shell } => commands::completions::run(shell),
    }
}
