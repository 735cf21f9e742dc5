//! A database that is full: written by the server itself, in steps.

use std::time::Instant;

use anyhow::Result;
use oncebox::store::error_group;
use sqlx::{Connection, PgConnection};

/// The consumers whose letters and receipts there are.
pub(super) const CONSUMERS: [&str; 8] =
    ["orders", "invoices", "stock", "mail", "ledger", "shipping", "returns", "prices"];
/// Errors, each of them a group for each consumer. A number is a value, so it makes no group of its own.
pub(super) const ERRORS: [&str; 6] = [
    "statement 1 touched 0 rows, expected 1",
    "duplicate key value violates unique constraint \"invoice_number\"",
    "the payload is no JSON: expected value at line 1 column 1",
    "value too long for type character varying(40)",
    "no such customer",
    "the carrier has answered 503",
];
/// How many rows one statement writes.
const STEP: i64 = 1_000_000;

/// How much of it.
pub(super) struct Full {
    pub(super) letters: i64,
    pub(super) receipts: i64,
}

/// The id of the nth letter.
pub(super) fn message(number: i64) -> String {
    format!("message-{number}")
}

/// Whose letter it is.
pub(super) fn consumer_of(number: i64) -> &'static str {
    CONSUMERS[usize::try_from(number).unwrap_or_default() % CONSUMERS.len()]
}

/// The group of letters with this error; each ends with the number of its row.
pub(super) fn group(consumer: &str, error: &str) -> String {
    error_group(consumer, &format!("{error} (row 1)"))
}

/// Numbers are given in this order, so the nth letter has the number n. `$4` to `$6` are the kinds of letters.
const LETTERS: &str = "INSERT INTO oncebox_dead (consumer, message_id, topic, partition, \"offset\", key, payload, headers, \
         timestamp_ms, error, attempts, failed_at, error_group) \
     SELECT ($4::text[])[k], 'message-' || n, ($4)[k] || '-events', n % 12, n, convert_to('key-' || n % 50000, 'UTF8'), \
         convert_to('{\"sku\":\"sku-' || n % 1000 || '\",\"note\":\"' || repeat('x', 200) || '\"}', 'UTF8'), \
         '[[\"traceparent\",\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"]]', 1700000000000 + n, \
         ($5::text[])[k] || ' (row ' || n || ')', 3, now() - ($3 - n) * interval '1 second', ($6::text[])[k] \
     FROM generate_series($1, $2) AS n CROSS JOIN LATERAL (SELECT (1 + n % cardinality($4))::int AS k) AS kind ORDER BY n";

const RECEIPTS: &str = "INSERT INTO oncebox_inbox (key, processed_at, consumer, message_id) \
     SELECT lpad(to_hex(n), 32, '0')::uuid, now() - n * interval '1 millisecond', ($3)[1 + n % cardinality($3)], 'receipt-' || n \
     FROM generate_series($1, $2) AS n";

const POSITIONS: &str = "INSERT INTO oncebox_position (consumer, topic, partition, next_offset, epoch, applied, duplicates, \
         caught_up_at) \
     SELECT consumer, consumer || '-events', p, 1000000, 3, 1000000, 20000, now() FROM unnest($1::text[]) AS consumer, \
         generate_series(0, 11) AS p";

impl Full {
    pub(super) async fn fill(&self, store: &str) -> Result<()> {
        let mut conn = PgConnection::connect(store).await?;
        let began = Instant::now();
        let consumers = CONSUMERS.map(str::to_owned).to_vec();
        sqlx::query(POSITIONS).bind(&consumers).execute(&mut conn).await?;
        let kinds = || ERRORS.into_iter().flat_map(|error| CONSUMERS.map(|consumer| (consumer, error)));
        let of_kinds: Vec<&str> = kinds().map(|(consumer, _)| consumer).collect();
        let errors: Vec<&str> = kinds().map(|(_, error)| error).collect();
        let groups: Vec<String> = kinds().map(|(consumer, error)| group(consumer, error)).collect();
        for first in (1..=self.letters).step_by(usize::try_from(STEP)?) {
            let last = self.letters.min(first + STEP - 1);
            let letters = sqlx::query(LETTERS).bind(first).bind(last).bind(self.letters);
            letters.bind(&of_kinds).bind(&errors).bind(&groups).execute(&mut conn).await?;
        }
        for first in (1..=self.receipts).step_by(usize::try_from(STEP)?) {
            let receipts = sqlx::query(RECEIPTS).bind(first).bind(self.receipts.min(first + STEP - 1));
            receipts.bind(&consumers).execute(&mut conn).await?;
            eprintln!("{} receipts, {:.0} s", first + STEP - 1, began.elapsed().as_secs_f64());
        }
        // As autovacuum would do it, sooner or later.
        for statement in ["VACUUM ANALYZE oncebox_dead", "VACUUM ANALYZE oncebox_inbox", "CHECKPOINT"] {
            sqlx::raw_sql(statement).execute(&mut conn).await?;
        }
        eprintln!("filled in {:.0} s", began.elapsed().as_secs_f64());
        Ok(())
    }
}
