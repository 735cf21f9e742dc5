//! The schema, and what other languages use of it.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::message::{Headers, Record};
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Check, DeadFilter, DeadLetter, DeadLetters, FindingLevel, Migrate, Status, Store};
use oncebox_postgres::{PgStore, SqlHandler};
use oncebox_sql::{Handler, PayloadKind};
use sqlx::{Connection, PgConnection};
use support::{apply, claims, consumer, execute, number, with_store};
use uuid::Uuid;

fn random_text(most: usize) -> String {
    let alphabet = ['a', 'Z', '0', '-', 'ü', '漢', '😀', '\\', '\'', '"', ' ', '\n', '%'];
    (0..fastrand::usize(0..=most)).map(|_| fastrand::choice(alphabet).unwrap()).collect()
}

fn random_id() -> String {
    match fastrand::u8(0..6) {
        0 => Uuid::now_v7().to_string(),
        1 => Uuid::now_v7().to_string().to_uppercase(),
        2 => Uuid::from_u128(fastrand::u128(..)).to_string(),
        3 => {
            // Almost a UUIDv7: one character is another one.
            let mut id: Vec<char> = Uuid::now_v7().to_string().chars().collect();
            let at = fastrand::usize(..id.len());
            id[at] = fastrand::choice(*b"0789abfg-\n").map(char::from).unwrap();
            id.into_iter().collect()
        }
        4 => format!("{}\n", Uuid::now_v7()),
        _ => format!("x{}", random_text(40)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_and_rust_compute_the_same_key() {
    with_store(|store, _| async move {
        let (mut consumers, mut tenants, mut ids, mut keys) = (vec![], vec![], vec![], vec![]);
        for _ in 0..5_000 {
            let consumer = ConsumerName::new(format!("c{}", fastrand::u8(..))).unwrap();
            let tenant = Tenant::new(random_text(8)).unwrap();
            let id = MessageId::new(random_id()).unwrap();
            keys.push(Uuid::from_bytes(*ReceiptKey::of(&consumer, &tenant, &id).as_bytes()));
            consumers.push(consumer.to_string());
            tenants.push(tenant.to_string());
            ids.push(id.to_string());
        }
        let wrong: Vec<String> = sqlx::query_scalar(
            "SELECT m FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) u(c, t, m, k) \
             WHERE oncebox_receipt_key(c, m, t) <> k",
        )
        .bind(&consumers)
        .bind(&tenants)
        .bind(&ids)
        .bind(&keys)
        .fetch_all(store.pool())
        .await
        .unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
        let timed = keys.iter().filter(|key| key.as_bytes()[0] < 0x80).count();
        assert!(timed > 500, "UUIDv7 were among them: {timed}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_languages_claim_the_same_receipts() {
    with_store(|store, url| async move {
        let mut conn = PgConnection::connect(&url).await.unwrap();
        let fresh = "SELECT oncebox_claim('stock', 'a')";
        assert!(sqlx::query_scalar::<_, bool>(fresh).fetch_one(&mut conn).await.unwrap());
        assert!(!sqlx::query_scalar::<_, bool>(fresh).fetch_one(&mut conn).await.unwrap());
        assert_eq!(apply(&store, &["a", "b"]).await, [false, true]);
        let named = "SELECT oncebox_claim(consumer => 'stock', message_id => 'a', tenant => 'acme')";
        assert!(sqlx::query_scalar::<_, bool>(named).fetch_one(&mut conn).await.unwrap());
        for wrong in [
            "SELECT oncebox_claim('stock', NULL)",
            "SELECT oncebox_claim('stock', '')",
            "SELECT oncebox_claim('no spaces', 'a')",
            "SELECT oncebox_claim(NULL, 'a')",
            "SELECT oncebox_claim('stock', 'a', NULL)",
            "SELECT oncebox_claim('stock', repeat('x', 513))",
        ] {
            let error = sqlx::query(wrong).execute(&mut conn).await.unwrap_err();
            let code = error.as_database_error().and_then(|e| e.code()).unwrap().into_owned();
            assert_eq!(code, "22023", "{wrong}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_of_another_message_is_an_error_in_every_language() {
    with_store(|store, url| async move {
        apply(&store, &["a"]).await;
        // As if somebody had found two ids with the same key.
        execute(&store, "UPDATE oncebox_inbox SET message_id = 'b'").await;
        let mut conn = PgConnection::connect(&url).await.unwrap();
        let error = sqlx::query("SELECT oncebox_claim('stock', 'a')").execute(&mut conn).await.unwrap_err();
        let code = error.as_database_error().and_then(|e| e.code()).unwrap().into_owned();
        assert_eq!(code, "OBX04");
        assert!(error.to_string().contains("belongs to message 'b'"), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_work_from_any_search_path() {
    with_store(|store, url| async move {
        execute(&store, "CREATE SCHEMA elsewhere").await;
        let mut conn = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("SET search_path = elsewhere").execute(&mut conn).await.unwrap();
        let fresh = "SELECT public.oncebox_claim('stock', 'a')";
        assert!(sqlx::query_scalar::<_, bool>(fresh).fetch_one(&mut conn).await.unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_its_own_by_the_search_path() {
    with_store(|store, url| async move {
        execute(&store, "CREATE SCHEMA erp").await;
        let url = format!("{url}&options[search_path]=erp");
        let other = PgStore::connect(&url).await.unwrap();
        assert_eq!(other.migrate().await.unwrap().len(), store.migrations().await.unwrap().len());
        assert_eq!(apply(&other, &["a"]).await, [true]);
        assert_eq!(number(&store, "SELECT count(*) FROM erp.oncebox_inbox").await, 1);
        assert_eq!(number(&store, "SELECT count(*) FROM public.oncebox_inbox").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_dead_letters_come_back_as_they_were() {
    with_store(|store, _| async move {
        let mut record = Record::at("t", 1, 2);
        record.key = Some(vec![7_u8; 10_000].into());
        record.payload = Some(vec![0_u8, 255].into());
        record.headers = Headers::from_iter([
            ("nul\0name", None),
            ("v", Some("nul\0value".into())),
            ("raw", Some(vec![0xff_u8].into())),
        ]);
        record.timestamp_ms = Some(-5);
        let letter = DeadLetter {
            tenant: Tenant::none(),
            message_id: None,
            record,
            error: format!("nul\0 and {}", "long ".repeat(10_000)),
            attempts: u32::MAX,
        };
        let mut txn = store.claim(&consumer(), &[]).await.unwrap().txn;
        store.park(&mut txn, &consumer(), std::slice::from_ref(&letter)).await.unwrap();
        store.commit(txn, None).await.unwrap();
        let found = store.dead_letters(&DeadFilter { limit: 10, ..DeadFilter::default() }).await.unwrap();
        assert_eq!(found[0].error.len(), 256);
        let whole = store.dead_letter(found[0].number).await.unwrap().unwrap();
        assert_eq!(whole.letter.record, letter.record);
        assert_eq!(whole.letter.error.len(), 8 * 1024);
        let mut txn = store.claim(&consumer(), &claims(&["x"])).await.unwrap().txn;
        let key = letter.record.key.as_deref().unwrap();
        let at = oncebox_core::store::PositionKey { consumer: consumer(), topic: "t".into(), partition: 1 };
        assert_eq!(store.parked_keys(&mut txn, &at, &[b"other", key]).await.unwrap(), [key.to_vec()]);
        store.rollback(txn).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_say_what_to_do() {
    with_store(|store, url| async move {
        let name = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
        assert!(
            store.check(4 << 20).await.unwrap().iter().all(|finding| finding.level != FindingLevel::Error)
        );
        execute(&store, &format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
        let store = PgStore::connect(&url).await.unwrap();
        let findings = store.check(4 << 20).await.unwrap();
        let found = findings.iter().find(|finding| finding.subject == "synchronous_commit").unwrap();
        assert_eq!(found.level, FindingLevel::Warning);
        assert!(found.detail.contains("Set it to on"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_ddl_can_do_its_work() {
    with_store(|store, url| async move {
        let name = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
        // A role that every server has, and that may do nothing by itself.
        execute(
            &store,
            &format!(
                "REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO pg_monitor"
            ),
        )
        .await;
        let lean = PgStore::connect(&format!("{url}&options[role]=pg_monitor")).await.unwrap();
        assert!(lean.migrate().await.unwrap().is_empty());
        assert_eq!(apply(&lean, &["a"]).await, [true]);
        let findings = lean.check(4 << 20).await.unwrap();
        let temporary = findings.iter().find(|finding| finding.subject == "temporary functions").unwrap();
        assert_eq!(temporary.level, FindingLevel::Warning);
        let handler = Handler::each(["SELECT :id"]).unwrap();
        let handler = SqlHandler::prepare(&lean, &handler, PayloadKind::Json).await;
        let error = handler.unwrap_err().to_string();
        assert!(error.contains("GRANT TEMPORARY"), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_migrations_can_be_run_by_hand() {
    let database = support::Database::create().await;
    let store = PgStore::connect(&database.url).await.unwrap();
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    for step in store.migrations().await.unwrap() {
        sqlx::raw_sql(sqlx::AssertSqlSafe(step.script)).execute(&mut conn).await.unwrap();
    }
    assert!(store.migrations().await.unwrap().iter().all(|step| step.applied));
    assert!(store.migrate().await.unwrap().is_empty(), "nothing is left to do");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_could_emit_still_can_after_an_upgrade() {
    let database = support::Database::create().await;
    let store = PgStore::connect(&database.url).await.unwrap();
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let run = async |conn: &mut PgConnection, sql: &str| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(conn).await.unwrap();
    };
    for step in &store.migrations().await.unwrap()[..4] {
        run(&mut conn, &step.script).await;
    }
    run(
        &mut conn,
        "REVOKE EXECUTE ON FUNCTION oncebox_emit FROM PUBLIC; GRANT EXECUTE ON FUNCTION oncebox_emit TO pg_monitor; \
         SELECT oncebox_emit('t', 'a', '{}'); UPDATE oncebox_outbox SET held_until = 'infinity'",
    )
    .await;
    assert_eq!(store.migrate().await.unwrap()[0].name, "delays");
    let may = "SELECT array_agg(has_function_privilege(r.role, f.signature, 'EXECUTE') ORDER BY f.n, r.n) \
         FROM (VALUES (1, 'oncebox_emit(text, text, json, json, timestamptz)'), \
             (2, 'oncebox_emit_bytes(text, text, bytea, json, timestamptz)')) AS f(n, signature), \
             (VALUES (1, 'pg_monitor'), (2, 'pg_read_all_data')) AS r(n, role)";
    let may: Vec<bool> = sqlx::query_scalar(may).fetch_one(&mut conn).await.unwrap();
    assert_eq!(may, [true, false, true, true]);
    let status = store.status(10).await.unwrap().outbox;
    assert_eq!((status.pending, status.delayed, status.held), (1, 0, 1));
}
