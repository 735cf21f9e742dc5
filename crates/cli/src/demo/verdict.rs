//! What the database says in the end.

use std::time::Duration;

use serde::Serialize;

use super::producer::Producer;
use super::{End, Stage};
use crate::args::Output;
use crate::exit::Failure;
use crate::output;

#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    /// Records sent to the broker, copies included.
    produced: i64,
    /// Different messages among them.
    unique: i64,
    /// Records that consumers brought to an end, redeliveries after kills included.
    delivered: i64,
    duplicates_suppressed: i64,
    /// Whether those two are all; otherwise there were at least so many.
    delivered_is_exact: bool,
    effects: i64,
    /// Messages that were given up, because of a mistake in them, and wait as dead letters.
    parked: i64,
    kills: u32,
    lost: i64,
    doubled: i64,
    out_of_order: i64,
    /// Stock missing or left over, counted from the other table.
    stock_off_by: i64,
    seconds: f64,
    verdict: &'static str,
    #[serde(skip)]
    rows: [&'static str; 2],
}

impl Verdict {
    pub(crate) async fn count(
        Stage { database, courier, .. }: &Stage<'_>,
        end: End,
        producer: &Producer,
        kills: u32,
        took: Duration,
    ) -> Result<Self, Failure> {
        let mistaken = i64::from(producer.plan.mistaken);
        let unique = i64::from(producer.plan.messages) + mistaken;
        // Somebody may have put one right and replayed it meanwhile; so the letters are counted before the effects.
        let parked = database.dead_letters().await?.min(mistaken);
        let effects = database.effects().await?;
        let distinct = database.distinct_effects().await?;
        let known = courier.duplicates(database).await?;
        let delivered_is_exact = courier.knows_all_duplicates();
        // What is settled and has no effect of its own was skipped.
        let duplicates_suppressed = match end {
            End::Settled if !delivered_is_exact => known.max(producer.produced() - effects - parked),
            _ => known,
        };
        let mut verdict = Self {
            produced: producer.produced(),
            unique,
            delivered: effects + duplicates_suppressed + parked,
            duplicates_suppressed,
            delivered_is_exact,
            effects,
            parked,
            kills,
            lost: (unique - distinct - parked).max(0),
            doubled: effects - distinct,
            out_of_order: database.out_of_order().await?,
            stock_off_by: database.stock_taken().await?
                - producer.unique_quantity()
                - database.taken_by_mended().await?,
            seconds: took.as_secs_f64(),
            verdict: "failed",
            rows: courier.rows(),
        };
        if verdict.lost == 0 && verdict.doubled == 0 && verdict.out_of_order == 0 && verdict.stock_off_by == 0
        {
            verdict.verdict = "ok";
        }
        Ok(verdict)
    }

    pub(crate) fn is_good(&self) -> bool {
        self.verdict == "ok"
    }

    /// How many messages wait for somebody who puts them right.
    pub(crate) fn parked(&self) -> i64 {
        self.parked
    }

    pub(crate) fn print(&self, output: Output) -> Result<(), Failure> {
        if output == Output::Json {
            return Ok(output::json(self)?);
        }
        let row = |what: &str, value: i64| [what.to_owned(), value.to_string()];
        let [delivered, suppressed] = self.rows;
        let mut rows = vec![
            row("records produced", self.produced),
            row("  different messages", self.unique),
            row(delivered, self.delivered),
            row(suppressed, self.duplicates_suppressed),
            row("effects in the database", self.effects),
            row("consumers killed", i64::from(self.kills)),
            row("effects lost", self.lost),
            row("effects doubled", self.doubled),
            row("effects out of order", self.out_of_order),
        ];
        if self.parked > 0 {
            rows.insert(5, row("parked as dead letters", self.parked));
        }
        output::line(&output::table(["counted from the database", ""], rows).to_string())?;
        let text = if self.is_good() && self.parked > 0 {
            format!(
                "Every message changed the database once, or waits as a dead letter. ({:.1} s)",
                self.seconds
            )
        } else if self.is_good() {
            format!("Every message changed the database once. ({:.1} s)", self.seconds)
        } else {
            "FAILED: an effect is lost, doubled or out of order.".to_owned()
        };
        output::line(&text)?;
        Ok(())
    }
}
