//! `oncebox completions SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Answer, CommandResult};

pub(crate) fn run(shell: Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "oncebox", &mut script);
    crate::output::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Answer::Yes)
}
