//! One file a command.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod dead;
pub(crate) mod init;
pub(crate) mod migrate;
pub(crate) mod outbox;
pub(crate) mod position;
pub(crate) mod purge;
pub(crate) mod run;
mod selection;
pub(crate) mod status;
