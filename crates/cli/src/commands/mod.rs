//! One file a command.

pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod dashboard;
pub(crate) mod dead;
pub(crate) mod find;
pub(crate) mod init;
pub(crate) mod migrate;
pub(crate) mod old_transactions;
pub(crate) mod outbox;
pub(crate) mod pause;
pub(crate) mod position;
pub(crate) mod purge;
pub(crate) mod run;
mod selection;
pub(crate) mod status;
