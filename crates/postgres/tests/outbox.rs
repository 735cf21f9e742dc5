//! The outbox against a real server: how others write into it, and what happens when transactions meet.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use std::time::Duration;

use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{
    Check, Deliveries, EventFilter, EventState, FindingLevel, HeldEvent, Outbox, OutboxAdmin, ParkedEvent,
    Sweep,
};
use oncebox_postgres::PgStore;
use oncebox_testkit::conformance::ready;
use sqlx::{Connection, PgConnection};
use support::relay::{HOUR, HandRelay, MANY, emit, every, text};
use support::{execute, number, with_database, with_store};
use tokio::time::{Instant, sleep, timeout};

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_insert_is_an_event() {
    with_store(|store, _| async move {
        let relay = HandRelay::start(&store).await;
        execute(
            &store,
            "INSERT INTO oncebox_outbox (topic, key, payload) VALUES ('t', 'k', '{}'), ('t', NULL, NULL)",
        )
        .await;
        let events = relay.next("t").await;
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].key.as_deref(), Some(b"k".as_slice()));
        assert_eq!(text(&events[0]), "{}");
        assert_eq!((&events[1].key, &events[1].payload), (&None, &None));
        for event in events {
            assert_eq!(event.id.get_version_num(), 7);
            assert_eq!(event.id.get_variant(), uuid::Variant::RFC4122);
            let (seconds, nanos) = event.id.get_timestamp().unwrap().to_unix();
            let made_at = i64::try_from(seconds).unwrap() * 1000 + i64::from(nanos / 1_000_000);
            assert!((event.created_at_ms - made_at).abs() < 1000, "{made_at} and {}", event.created_at_ms);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_keys_are_spread_over_all_shards() {
    with_store(|store, _| async move {
        execute(&store, "INSERT INTO oncebox_outbox (topic) SELECT 't' FROM generate_series(1, 1000)").await;
        assert_eq!(number(&store, "SELECT count(DISTINCT shard) FROM oncebox_outbox").await, 16);
        assert_eq!(
            number(&store, "SELECT count(*) FROM oncebox_outbox WHERE shard NOT BETWEEN 0 AND 15").await,
            0
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emit_works_on_connections_and_transactions() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let mut tx = store.pool().begin().await.unwrap();
        let id = tx.emit(Event::to("t").bytes("transaction")).await.unwrap();
        assert!(relay.next("t").await.is_empty());
        tx.commit().await.unwrap();
        let mut rolled_back = store.pool().begin().await.unwrap();
        rolled_back.emit(Event::to("t").bytes("never")).await.unwrap();
        rolled_back.rollback().await.unwrap();
        let mut conn = PgConnection::connect(&url).await.unwrap();
        let borrowed: &mut PgConnection = &mut conn;
        borrowed.emit(Event::to("t").bytes("connection")).await.unwrap();
        assert_eq!(conn.cached_statements_size(), 0, "nobody has said that named statements work here");
        let events = relay.next("t").await;
        assert_eq!(events.iter().map(text).collect::<Vec<_>>(), ["transaction", "connection"]);
        assert_eq!(events[0].id, id);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_from_another_search_path() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("k", "first"), ("k", "second")]).await;
        relay.hold(seqs[0], HOUR).await;
        assert!(relay.next("t").await.is_empty());
        let mut conn = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("CREATE SCHEMA elsewhere; SET search_path = elsewhere")
            .execute(&mut conn)
            .await
            .unwrap();
        for sql in [
            "SELECT public.oncebox_emit('t', 'k', '\"third\"')",
            "INSERT INTO public.oncebox_outbox (topic, key, payload) VALUES ('t', 'k', 'fourth')",
            // Also an operator's own statement lets a key go on.
            "DELETE FROM public.oncebox_outbox WHERE held_until < 'infinity'",
        ] {
            sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
        }
        assert_eq!(relay.texts("t").await, ["second", "\"third\"", "fourth"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_transaction_elsewhere_stops_nobody() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let mut other = PgConnection::connect(&url).await.unwrap();
        let mut open = other.begin().await.unwrap();
        open.emit(Event::to("t").key("a").bytes("late")).await.unwrap();
        let seqs = emit(&store, "t", &[("a", "early"), ("b", "other")]).await;
        assert_eq!(relay.texts("t").await, ["early", "other"]);
        relay.publish(seqs).await;
        open.commit().await.unwrap();
        assert_eq!(relay.texts("t").await, ["late"], "its number is lower than those that were published");
    })
    .await;
}

/// A report that has been reading for an hour keeps the index entries of all that was published since. The relay begins above them, and
/// still finds what commits late, in its order, and what an operator makes ready again.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_stays_open_hides_nothing() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let shards = relay.shards();
        let parked = emit(&store, "t", &[("c", "parked")]).await[0];
        relay.park(parked).await;
        let mut reader = PgConnection::connect(&url).await.unwrap();
        let mut report = reader.begin().await.unwrap();
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute(&mut *report).await.unwrap();
        sqlx::query("SELECT count(*) FROM oncebox_outbox").execute(&mut *report).await.unwrap();
        for _ in 0..2 {
            let many = "INSERT INTO oncebox_outbox (topic, key, payload) \
                 SELECT 't', convert_to('k' || i % 100, 'UTF8'), 'x' FROM generate_series(1, 100000) AS i";
            execute(&store, many).await;
            execute(&store, "DELETE FROM oncebox_outbox WHERE parked_at IS NULL").await;
        }
        let pass = async || {
            let seqs = emit(&store, "t", &[("b", "other")]).await;
            assert_eq!(ready(&store, &shards).await.unwrap().len(), 1);
            assert_eq!(relay.texts("t").await, ["other"]);
            relay.publish(seqs).await;
            sleep(Duration::from_millis(100)).await;
        };

        let mut writer = PgConnection::connect(&url).await.unwrap();
        let mut open = writer.begin().await.unwrap();
        open.emit(Event::to("t").key("a").bytes("late")).await.unwrap();
        for _ in 0..20 {
            pass().await;
        }
        open.commit().await.unwrap();
        let later = emit(&store, "t", &[("a", "later")]).await;
        let both = relay.next("t").await;
        assert_eq!(both.iter().map(text).collect::<Vec<_>>(), ["late", "later"]);
        relay.publish(vec![both[0].seq, later[0]]).await;

        // Now nobody writes, and the floors rise.
        for _ in 0..20 {
            pass().await;
        }
        assert!(ready(&store, &shards).await.unwrap().is_empty());
        store.retry_events(&EventFilter { seqs: vec![parked], ..every() }).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while ready(&store, &shards).await.unwrap().is_empty() || relay.texts("t").await != ["parked"] {
            assert!(Instant::now() < deadline, "it was made ready again");
            sleep(Duration::from_millis(200)).await;
        }
        report.rollback().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_lost_its_shards_cannot_hold_or_park() {
    with_store(|store, _| async move {
        let old = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "held"), ("b", "parked"), ("c", "published")]).await;
        store.release_shards(old.id, &old.shards(), true).await.unwrap();
        let new = HandRelay::start(&store).await;
        assert!(new.leases.held.iter().zip(&old.leases.held).all(|(new, old)| new.epoch > old.epoch));
        let error = "too late".to_owned();
        let late = Deliveries {
            published: vec![seqs[2]],
            held: vec![HeldEvent { seq: seqs[0], delay: HOUR, error: Some(error.clone()) }],
            parked: vec![ParkedEvent { seq: seqs[1], error }],
            ..Deliveries::default()
        };
        old.record_deliveries(late.clone()).await;
        assert_eq!(new.texts("t").await, ["held", "parked"], "a confirmed event is removed by anybody");
        new.record_deliveries(late).await;
        assert!(new.next("t").await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_events_pass_to_the_next_relay() {
    with_store(|store, _| async move {
        let old = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")]).await;
        old.hold(seqs[0], HOUR).await;
        assert_eq!(old.texts("t").await, ["4"]);
        store.release_shards(old.id, &old.shards(), true).await.unwrap();
        let new = HandRelay::start(&store).await;
        assert_eq!(new.texts("t").await, ["4"]);
        // The old one hears only now that the first was delivered.
        old.publish(vec![seqs[0]]).await;
        assert_eq!(new.texts("t").await, ["2", "3", "4"]);
        new.hold(seqs[1], Duration::ZERO).await;
        assert_eq!(new.texts("t").await, ["2", "3", "4"]);
    })
    .await;
}

/// Waits until somebody waits for a lock.
async fn until_someone_waits(store: &PgStore) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let deadline = Instant::now() + Duration::from_secs(20);
    while number(store, waiting).await == 0 {
        assert!(Instant::now() < deadline, "nobody waits");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_not_put_behind_one_that_is_just_going() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "going"), ("a", "next")]).await;
        relay.hold(seqs[0], HOUR).await;
        let mut other = PgConnection::connect(&url).await.unwrap();
        let mut going = other.begin().await.unwrap();
        sqlx::query("DELETE FROM oncebox_outbox WHERE seq = $1")
            .bind(seqs[0])
            .execute(&mut *going)
            .await
            .unwrap();
        let (reader, shards) = (store.clone(), relay.shards());
        let reading = tokio::spawn(async move { reader.next_events("t", &shards, MANY).await.unwrap() });
        until_someone_waits(&store).await;
        going.commit().await.unwrap();
        assert_eq!(reading.await.unwrap().iter().map(text).collect::<Vec<_>>(), ["next"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_finds_those_that_were_just_put_behind() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "going"), ("a", "next")]).await;
        relay.hold(seqs[0], HOUR).await;
        let mut other = PgConnection::connect(&url).await.unwrap();
        let mut reading = other.begin().await.unwrap();
        // What a reader does, before its commit.
        let put_behind = "WITH first AS (SELECT seq FROM oncebox_outbox WHERE seq = $1 FOR SHARE) \
             UPDATE oncebox_outbox o SET held_until = 'infinity' FROM first WHERE o.seq = $2";
        sqlx::query(put_behind).bind(seqs[0]).bind(seqs[1]).execute(&mut *reading).await.unwrap();
        let publisher = HandRelay { store: store.clone(), id: relay.id, leases: relay.leases.clone() };
        let first = seqs[0];
        let publishing = tokio::spawn(async move { publisher.publish(vec![first]).await });
        until_someone_waits(&store).await;
        reading.commit().await.unwrap();
        publishing.await.unwrap();
        assert_eq!(relay.texts("t").await, ["next"]);
    })
    .await;
}

/// Deletes in a transaction that stays open.
async fn delete(conn: &mut PgConnection, seq: i64) {
    sqlx::query("DELETE FROM oncebox_outbox WHERE seq = $1").bind(seq).execute(conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_finds_the_one_behind_another_that_goes() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "1"), ("a", "2"), ("a", "3")]).await;
        relay.hold(seqs[0], HOUR).await;
        assert!(relay.next("t").await.is_empty());
        let mut other = PgConnection::connect(&url).await.unwrap();
        let mut operator = other.begin().await.unwrap();
        delete(&mut operator, seqs[1]).await;
        let publisher = HandRelay { store: store.clone(), id: relay.id, leases: relay.leases.clone() };
        let first = seqs[0];
        let publishing = tokio::spawn(async move { publisher.publish(vec![first]).await });
        until_someone_waits(&store).await;
        operator.commit().await.unwrap();
        publishing.await.unwrap();
        assert_eq!(relay.texts("t").await, ["3"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn housekeeping_frees_what_two_left_behind() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")]).await;
        relay.hold(seqs[0], HOUR).await;
        relay.hold(seqs[1], HOUR).await;
        assert!(relay.next("t").await.is_empty());
        let mut one = PgConnection::connect(&url).await.unwrap();
        let mut two = PgConnection::connect(&url).await.unwrap();
        let mut first = one.begin().await.unwrap();
        let mut second = two.begin().await.unwrap();
        delete(&mut first, seqs[0]).await;
        delete(&mut second, seqs[1]).await;
        first.commit().await.unwrap();
        second.commit().await.unwrap();
        store.purge_published(HOUR).await.unwrap();
        assert_eq!(relay.texts("t").await, ["3", "4"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn housekeeping_looks_at_all_keys_and_leaves_those_in_order_alone() {
    with_store(|store, _| async move {
        // More keys than one step has; every second one waits for nobody. Events without a key are not concerned.
        execute(
            &store,
            "INSERT INTO oncebox_outbox (topic, key, held_until) \
             SELECT 't' || n % 3, CASE WHEN n % 7 > 0 THEN convert_to(n::text, 'UTF8') END, \
                 CASE WHEN n % 7 > 0 AND n % 2 = 0 THEN 'infinity' ELSE now() + interval '1 hour' END \
             FROM generate_series(1, 4000) n; \
             INSERT INTO oncebox_outbox (topic, key, held_until) \
             SELECT topic, key, 'infinity' FROM oncebox_outbox WHERE key IS NOT NULL",
        )
        .await;
        let due = "SELECT count(*) FROM oncebox_outbox WHERE held_until <= clock_timestamp()";
        let left_behind = number(
            &store,
            "SELECT count(*) FROM oncebox_outbox WHERE held_until = 'infinity' AND seq <= 4000",
        )
        .await;
        assert!(left_behind > 1000);
        store.purge_published(HOUR).await.unwrap();
        assert_eq!(number(&store, due).await, left_behind);
        store.purge_published(HOUR).await.unwrap();
        assert_eq!(number(&store, due).await, left_behind, "those behind them wait");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_do_not_wait_for_an_operator_who_has_an_event() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "held"), ("b", "parked")]).await;
        let mut other = PgConnection::connect(&url).await.unwrap();
        let mut operator = other.begin().await.unwrap();
        sqlx::query("SELECT FROM oncebox_outbox FOR UPDATE").execute(&mut *operator).await.unwrap();
        let recorder = HandRelay { store: store.clone(), id: relay.id, leases: relay.leases.clone() };
        let deliveries = Deliveries {
            held: vec![HeldEvent { seq: seqs[0], delay: HOUR, error: Some("no".to_owned()) }],
            parked: vec![ParkedEvent { seq: seqs[1], error: "never".to_owned() }],
            ..Deliveries::default()
        };
        let recording = tokio::spawn(async move { recorder.record_deliveries(deliveries).await });
        until_someone_waits(&store).await;
        let renewed = timeout(Duration::from_secs(5), store.lease(relay.id, "by hand", HOUR)).await;
        assert_eq!(renewed.unwrap().unwrap().held.len(), 16);
        operator.commit().await.unwrap();
        recording.await.unwrap();
        assert!(relay.next("t").await.is_empty());
    })
    .await;
}

fn sweep_of(name: &str, sql: &str) -> Sweep {
    Sweep {
        name: name.to_owned(),
        query: sql.to_owned(),
        row_key: "id".to_owned(),
        window: HOUR,
        topic: "t".to_owned(),
        event_key: None,
        limit: 10,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_do_not_wait_for_sweeps() {
    with_store(|store, url| async move {
        execute(&store, "CREATE TABLE orders (id int)").await;
        let mut other = PgConnection::connect(&url).await.unwrap();
        let mut locked = other.begin().await.unwrap();
        sqlx::query("LOCK TABLE orders").execute(&mut *locked).await.unwrap();
        let mut sweeps = tokio::task::JoinSet::new();
        for name in ["a", "b", "c", "d", "e"] {
            let store = store.clone();
            sweeps.spawn(async move { store.sweep(&sweep_of(name, "SELECT id FROM orders")).await.unwrap() });
        }
        until_someone_waits(&store).await;
        sleep(Duration::from_millis(200)).await;
        let relay = timeout(Duration::from_secs(5), HandRelay::start(&store)).await.unwrap();
        let shards = relay.shards();
        let released = store.release_shards(relay.id, &shards, true);
        timeout(Duration::from_secs(5), released).await.unwrap().unwrap();
        locked.commit().await.unwrap();
        sweeps.join_all().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_of_a_sweep_names_the_setting() {
    with_store(|store, _| async move {
        let sweep = sweep_of("s", "SELECT 1 AS number, 2 AS amount");
        let error = store.check_sweep(&sweep).await.unwrap_err().to_string();
        assert!(error.contains("key names the column id, its query has number, amount"), "{error}");
        let sweep = Sweep { event_key: Some("sku".to_owned()), ..sweep_of("s", "SELECT 1 AS id") };
        let error = store.check_sweep(&sweep).await.unwrap_err().to_string();
        assert!(error.contains("emit.key names the column sku, its query has id"), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_of_some_time() {
    with_store(|store, _| async move {
        for time in ["infinity", "-infinity"] {
            let insert = "INSERT INTO oncebox_outbox (topic, created_at) VALUES ('t', $1::text::timestamptz)";
            let error = sqlx::query(insert).bind(time).execute(store.pool()).await.unwrap_err();
            assert!(error.as_database_error().unwrap().is_check_violation(), "{error}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_waiting_events_do_not_stand_in_the_way() {
    with_store(|store, _| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "failing")]).await;
        execute(
            &store,
            "INSERT INTO oncebox_outbox (topic, key, payload) SELECT 't', 'a', 'behind' FROM generate_series(1, 20000)",
        )
        .await;
        let last = emit(&store, "t", &[("b", "other")]).await;
        relay.hold(seqs[0], HOUR).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while relay.texts("t").await != ["other"] {
            assert!(Instant::now() < deadline, "the other event is never found");
        }
        relay.publish(last).await;
        assert!(relay.next("t").await.is_empty());
        assert!(ready(&store, &relay.shards()).await.unwrap().is_empty());
        relay.publish(seqs).await;
        let mut published = 0;
        while published < 20_000 {
            let seqs: Vec<i64> = relay.next("t").await.iter().map(|event| event.seq).collect();
            assert!(!seqs.is_empty(), "stopped after {published}");
            assert!(seqs.is_sorted());
            published += seqs.len();
            relay.publish(seqs).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_no_events_are_parked() {
    with_store(|store, _| async move {
        let relay = HandRelay::start(&store).await;
        execute(
            &store,
            "INSERT INTO oncebox_outbox (topic, key, headers, payload) VALUES ('t', 'k', '[1]', 'bad'), \
             ('no topic', 'k', '{}', 'bad'), ('t', 'k', '{\"n\": 1}', 'good')",
        )
        .await;
        assert_eq!(relay.texts("t").await, ["good"]);
        assert!(relay.next("no topic").await.is_empty());
        let parked = EventFilter { state: Some(EventState::Parked), ..every() };
        let parked = store.events(&parked).await.unwrap();
        let errors: Vec<&str> = parked.iter().map(|entry| entry.error.as_deref().unwrap()).collect();
        assert_eq!(errors.len(), 2);
        assert!(errors[0].contains("headers") && errors[1].contains("topic"), "{errors:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowded_shard_fills_the_batch() {
    with_store(|store, _| async move {
        let relay = HandRelay::start(&store).await;
        execute(
            &store,
            "INSERT INTO oncebox_outbox (topic, key, payload) SELECT 't', 'one key', 'x' FROM generate_series(1, 1500)",
        )
        .await;
        assert_eq!(relay.next("t").await.len(), MANY.messages);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_relays_and_sweeps_are_purged() {
    with_database(|url| async move {
        let store = PgStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        execute(
            &store,
            "INSERT INTO oncebox_relay VALUES (gen_random_uuid(), 'long gone', now() - interval '25 hours'), \
                 (gen_random_uuid(), 'just gone', now() - interval '1 hour'); \
             INSERT INTO oncebox_sweep VALUES ('s', 'over', now()), ('s', 'not over', now() + interval '1 hour')",
        )
        .await;
        assert_eq!(store.purge_published(Duration::ZERO).await.unwrap(), 0);
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_relay WHERE name = 'long gone'").await, 0);
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_relay").await, 1);
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_sweep WHERE row_key = 'not over'").await, 1);
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_sweep").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_misses_a_relay() {
    with_store(|store, _| async move {
        let about = async || {
            let findings = store.check(4 << 20).await.unwrap();
            findings.into_iter().find(|finding| finding.subject == "outbox").map(|finding| finding.level)
        };
        assert_eq!(about().await, None);
        emit(&store, "t", &[("a", "waits")]).await;
        assert_eq!(about().await, Some(FindingLevel::Warning));
        HandRelay::start(&store).await;
        assert_eq!(about().await, Some(FindingLevel::Ok));
    })
    .await;
}
