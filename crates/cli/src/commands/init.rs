//! `oncebox init`: a commented configuration to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use oncebox_config::TEMPLATE;

use crate::exit::{Answer, CommandResult, Failure};
use crate::output;

pub(crate) fn run(file: &Path, force: bool) -> CommandResult {
    let opened = if force {
        OpenOptions::new().write(true).create(true).truncate(true).open(file)
    } else {
        OpenOptions::new().write(true).create_new(true).open(file)
    };
    let written = opened.and_then(|mut out| out.write_all(TEMPLATE.as_bytes()));
    match written {
        Ok(()) => {
            output::note(&format!(
                "wrote {}: set store.url and kafka.brokers, then run `oncebox check`",
                file.display()
            ));
            Ok(Answer::Yes)
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            Err(Failure::data(format!("{} exists already; use --force to overwrite it", file.display())))
        }
        Err(e) => Err(Failure::data(format!("cannot write {}: {e}", file.display()))),
    }
}
