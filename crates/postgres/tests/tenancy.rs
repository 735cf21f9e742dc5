//! Handlers that set their search path or their role: a schema or a role for each tenant.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use oncebox_core::error::BoxError;
use oncebox_core::inbox::Apply;
use oncebox_core::message::{Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{DeadLetter, DeadLetters, ErrorClass, Ownership, Positions, Store};
use oncebox_postgres::{PgStore, SqlHandler};
use oncebox_sql::{Handler, PayloadKind};
use sqlx::PgConnection;
use support::{advance, claims, consumer, execute, number, position, with_database, with_store};

/// A role that every server has, and that may do nothing by itself.
const ROLE: &str = "pg_monitor";

/// Two tenants, each with a table of its own that the base path does not show.
const TENANTS: &str = "CREATE SCHEMA acme; CREATE SCHEMA zeta; \
     CREATE TABLE acme.ledger (id text); CREATE TABLE zeta.ledger (id text); \
     GRANT USAGE ON SCHEMA acme, zeta TO pg_monitor; GRANT SELECT, INSERT, UPDATE ON acme.ledger, zeta.ledger TO pg_monitor";

const BY_PATH: &str = "SELECT set_config('search_path', 'acme', true)";
const BY_ROLE: &str = "SET LOCAL ROLE pg_monitor";

fn letter(offset: i64) -> DeadLetter {
    DeadLetter {
        tenant: Tenant::none(),
        message_id: Some(format!("parked-{offset}")),
        record: Record::at("stock.updates", 0, offset),
        error: "no".to_owned(),
        attempts: 1,
    }
}

/// One transaction as the engine makes it: claim, handler, dead letters, position.
async fn transact(
    store: &PgStore,
    owner: &Ownership,
    offset: i64,
    handler: impl AsyncFnOnce(&mut PgConnection) -> Result<(), BoxError>,
) -> Result<(), ErrorClass> {
    let id: &'static str = Box::leak(format!("m-{offset}").into_boxed_str());
    let mut claimed = store.claim(&consumer(), &claims(&[id])).await.unwrap();
    assert_eq!(claimed.fresh, [true]);
    if let Err(error) = handler(&mut claimed.txn).await {
        store.rollback(claimed.txn).await;
        return Err(PgStore::classify(&*error));
    }
    store.park(&mut claimed.txn, &consumer(), &[letter(offset)]).await.unwrap();
    store.commit(claimed.txn, advance(owner, offset + 1)).await.map_err(|error| panic!("{error}"))
}

async fn assert_all_is_there(store: &PgStore, messages: i64) {
    assert_eq!(number(store, "SELECT count(*) FROM oncebox_inbox").await, messages, "receipts");
    assert_eq!(number(store, "SELECT count(*) FROM oncebox_dead").await, messages, "dead letters");
    assert_eq!(number(store, "SELECT count(*) FROM oncebox_outbox").await, messages, "events");
    assert_eq!(number(store, "SELECT count(*) FROM acme.ledger").await, messages, "effects");
    assert_eq!(number(store, "SELECT next_offset FROM oncebox_position").await, messages, "position");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_in_rust_may_set_its_search_path_and_its_role() {
    with_store(|store, _| async move {
        execute(&store, TENANTS).await;
        let owner = store.acquire(&position()).await.unwrap();
        let moves = [BY_PATH, BY_ROLE, "SET search_path = acme; SET ROLE pg_monitor"];
        for (offset, go) in (0..).zip(moves) {
            let handle = async |conn: &mut PgConnection| -> Result<(), BoxError> {
                sqlx::raw_sql(go).execute(&mut *conn).await?;
                sqlx::query("INSERT INTO acme.ledger VALUES ('before')").execute(&mut *conn).await?;
                conn.emit(Event::to("moved").key("it's").bytes(vec![0, 255])).await?;
                let place = "UPDATE acme.ledger SET id = current_setting('search_path') || ' ' || current_user \
                     WHERE id = 'before'";
                sqlx::query(place).execute(conn).await?;
                Ok(())
            };
            let first = transact(&store, &owner, offset, handle).await;
            if first.is_err() {
                // Nobody knew yet that handlers of this process move.
                assert_eq!(first, Err(ErrorClass::Transient));
                transact(&store, &owner, offset, handle).await.unwrap();
            }
        }
        assert_all_is_there(&store, 3).await;
        let whole = "SELECT count(*) FROM oncebox_outbox WHERE topic = 'moved' AND key = 'it''s' AND payload = '\\x00ff'";
        assert_eq!(number(&store, whole).await, 3);
        let places = "SELECT count(DISTINCT id) FROM acme.ledger \
             WHERE id IN ('acme ' || session_user, '\"$user\", public pg_monitor', 'acme pg_monitor')";
        assert_eq!(number(&store, places).await, 3, "emit returns to where the handler was");
    })
    .await;
}

fn each(statements: &[&str]) -> Handler {
    Handler::each(statements.iter().copied()).unwrap()
}

fn message(tenant: &str, offset: i64) -> Message {
    let mut record = Record::at("stock.updates", 0, offset);
    record.payload = Some("{}".into());
    Message::new(MessageId::new(format!("m-{offset}")).unwrap(), Tenant::new(tenant).unwrap(), record)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_in_sql_may_set_its_search_path() {
    with_store(|store, _| async move {
        execute(&store, TENANTS).await;
        let handler = each(&[
            "SELECT set_config('search_path', :tenant, true)",
            "INSERT INTO ledger (id) VALUES (:id) RETURNING id",
            "SELECT oncebox_emit('changed', :id, :payload::json) -- no schema",
        ]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        let owner = store.acquire(&position()).await.unwrap();
        for offset in 0..3 {
            let batch = [message("acme", offset), message("zeta", 10 + offset), message("zeta", 20 + offset)];
            let apply = async |conn: &mut PgConnection| -> Result<(), BoxError> {
                handler.apply(conn, &batch).await.map_err(|failure| failure.error)
            };
            transact(&store, &owner, offset, apply).await.unwrap();
        }
        execute(&store, "DELETE FROM oncebox_outbox WHERE causation_id::text <> ALL ('{m-0,m-1,m-2}')").await;
        assert_all_is_there(&store, 3).await;
        assert_eq!(number(&store, "SELECT count(DISTINCT id) FROM zeta.ledger").await, 6);
        let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
        let failure = handler.apply(&mut claimed.txn, &[message("nobody", 99)]).await.unwrap_err();
        assert_eq!(PgStore::classify(&*failure.error), ErrorClass::Environment, "{failure:?}");
        let text = failure.error.to_string();
        assert!(text.starts_with("statement 2: ") && text.contains("\"ledger\""), "{text}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_in_sql_may_set_its_role() {
    with_store(|store, _| async move {
        execute(&store, TENANTS).await;
        execute(
            &store,
            "CREATE FUNCTION as_owner() RETURNS uuid LANGUAGE sql SECURITY DEFINER AS \
             $$ SELECT oncebox_emit('changed', 'by owner', '{}') $$",
        )
        .await;
        for (offset, emit) in (0..)
            .zip(["SELECT oncebox_emit('changed', current_user::text, :payload::json)", "SELECT as_owner()"])
        {
            let handler = each(&[
                BY_ROLE,
                "INSERT INTO acme.ledger (id) VALUES (current_user)",
                emit,
                "SELECT :offset",
            ]);
            let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
            let owner = store.acquire(&position()).await.unwrap();
            let apply = async |conn: &mut PgConnection| -> Result<(), BoxError> {
                handler.apply(conn, &[message("acme", offset)]).await.map_err(|failure| failure.error)
            };
            transact(&store, &owner, offset, apply).await.unwrap();
        }
        assert_all_is_there(&store, 2).await;
        let by_role = format!("SELECT count(*) FROM acme.ledger WHERE id = '{ROLE}'");
        assert_eq!(number(&store, &by_role).await, 2, "the effect is of the handler's role");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_sets_for_the_session_ends_with_its_transaction() {
    with_database(|url| async move {
        let store = PgStore::builder(&url).max_connections(1).connect().await.unwrap();
        store.migrate().await.unwrap();
        execute(&store, TENANTS).await;
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let go = "SET search_path = acme; SET ROLE pg_monitor";
        sqlx::raw_sql(go).execute(&mut *claimed.txn).await.unwrap();
        store.commit(claimed.txn, None).await.unwrap();
        let mut next = store.claim(&consumer(), &claims(&["b"])).await.unwrap();
        let now = "SELECT current_setting('search_path') || ' ' || current_setting('role')";
        let now: String = sqlx::query_scalar(now).fetch_one(&mut *next.txn).await.unwrap();
        assert_eq!(now, "\"$user\", public none");
        store.rollback(next.txn).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deferred_triggers_run_where_the_handler_was() {
    with_store(|store, _| async move {
        execute(&store, TENANTS).await;
        execute(
            &store,
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 INSERT INTO ledger VALUES ('deferred'); RETURN NULL; END $$; \
             CREATE TABLE stock (n int); \
             CREATE CONSTRAINT TRIGGER later AFTER INSERT ON stock DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION note()",
        )
        .await;
        let owner = store.acquire(&position()).await.unwrap();
        for (offset, parks) in [(0, false), (1, true)] {
            let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
            let work = format!("{BY_PATH}; INSERT INTO public.stock VALUES (1)");
            sqlx::raw_sql(sqlx::AssertSqlSafe(work)).execute(&mut *claimed.txn).await.unwrap();
            if parks {
                store.park(&mut claimed.txn, &consumer(), &[letter(offset)]).await.unwrap();
            }
            store.commit(claimed.txn, advance(&owner, offset + 1)).await.unwrap();
        }
        assert_eq!(number(&store, "SELECT count(*) FROM acme.ledger").await, 2);
    })
    .await;
}
