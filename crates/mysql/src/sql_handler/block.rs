//! `each` on MariaDB: the routine goes along with each batch, as a block without a name. It needs no right, and leaves nothing
//! behind.

use oncebox_core::message::Message;
use sqlx::MySqlConnection;

use super::body::{INPUTS, Parts, body};
use super::text::{json_source, run};
use super::values::{Values, to_json};
use super::{events, values::Wanted};
use crate::quote::text;

/// A handler that runs for every message, in a block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) wanted: Wanted,
    body: String,
    events: bool,
}

impl Block {
    pub(super) fn new(parts: &Parts<'_>) -> Self {
        Self { wanted: parts.wanted.clone(), body: body(parts), events: parts.events }
    }

    pub(super) async fn apply(
        &self,
        conn: &mut MySqlConnection,
        fresh: &[Message],
        values: &[Values<'_>],
    ) -> sqlx::Result<()> {
        let json = json_source(conn, &to_json(values)).await?;
        let consumer = if self.events { text(&events::consumer()) } else { "NULL".to_owned() };
        let inputs = [json, fresh.len().to_string(), consumer];
        let mut block = String::with_capacity(inputs[0].len() + self.body.len() + 256);
        block.push_str("BEGIN NOT ATOMIC\n");
        for ((name, kind), value) in INPUTS.iter().zip(&inputs) {
            block.push_str(&format!("DECLARE {name} {kind} DEFAULT {value};\n"));
        }
        block.push_str(&self.body);
        block.push_str("END");
        run(conn, block).await
    }
}
