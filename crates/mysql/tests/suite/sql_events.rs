//! Handlers that write events: what the session says about the cause while a statement runs.

use oncebox_core::message::{Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use sqlx::{Connection, MySqlConnection, Row};

use super::sql_support::{batch, each, prepare, run, with_both_users};
use super::support::execute;

/// Stands for `oncebox_emit`, and notes what that would see.
const NOTES: &str = "CREATE TABLE seen (at INT AUTO_INCREMENT PRIMARY KEY, cause TEXT, tenant TEXT, trace TEXT); \
     CREATE PROCEDURE oncebox_emit_noted() SQL SECURITY INVOKER \
     INSERT INTO seen (cause, tenant, trace) VALUES (@oncebox_causation_id, @oncebox_tenant, \
         CONCAT(@oncebox_traceparent, ' ', @oncebox_correlation_id))";

/// A function of the application that emits: the way to do so for many messages at once.
const FUNCTION: &str = "CREATE FUNCTION oncebox_emit_all(id TEXT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA \
     SQL SECURITY INVOKER BEGIN CALL oncebox_emit_noted(); RETURN 1; END";

type Seen = (Option<String>, Option<String>, Option<String>);

async fn seen(url: &str) -> Vec<Seen> {
    let mut conn = MySqlConnection::connect(url).await.unwrap();
    let rows =
        sqlx::query("SELECT cause, tenant, trace FROM seen ORDER BY at").fetch_all(&mut conn).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_know_the_message_they_follow_from() {
    with_both_users(|store, url| async move {
        execute(&url, NOTES).await;
        execute(&url, FUNCTION).await;
        execute(&url, "CREATE TABLE noted (n INT)").await;
        let message = |id: &str, tenant: &str, trace: Option<&'static str>| {
            let mut record = Record::at("t", 0, 1);
            if let Some(trace) = trace {
                record.headers.push("traceparent", Some(trace.into()));
                record.headers.push("correlation-id", Some("case-1".into()));
            }
            Message::new(MessageId::new(id).unwrap(), Tenant::new(tenant).unwrap(), record)
        };
        let messages = [message("m'1", "acme", Some("00-1-2-01")), message("m-2", "other", None)];
        let of_each = prepare(&store, &each(&[("CALL oncebox_emit_noted()", None)])).await;
        run(&store, &of_each, &messages).await.unwrap();
        let of_batch = batch(&["INSERT INTO noted SELECT oncebox_emit_all(id) FROM messages"]);
        let of_batch = prepare(&store, &of_batch).await;
        run(&store, &of_batch, &messages).await.unwrap();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            seen(&url).await,
            [
                (some("m'1"), some("acme"), some("00-1-2-01 case-1")),
                (some("m-2"), some("other"), None),
                (None, None, None),
                (None, None, None),
            ]
        );
    })
    .await;
}
