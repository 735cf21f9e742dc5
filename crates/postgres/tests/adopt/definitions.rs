//! What is said about a table before the first message.

use oncebox_core::store::{Adopt, AdoptedUse, Adopting, ErrorClass, FindingLevel, Status, Store};
use oncebox_postgres::PgStore;

use super::{Shop, adopt, claim, ids};

const ONE: AdoptedUse = AdoptedUse { consumers: 1, tenants: false, longest_consumer: 5 };

async fn errors_of(tables: &str, mapping: Adopt) -> Vec<String> {
    let shop = Shop::new(tables, mapping).await;
    let findings = shop.store.check_adopted(ONE).await.unwrap();
    findings.into_iter().filter(|f| f.level == FindingLevel::Error).map(|f| f.detail).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_will_not_do_is_refused_with_the_reason() {
    let once = r#"CREATE UNIQUE INDEX inbox_once ON "inbox" ("id")"#;
    for (tables, said) in [
        ("", "no such table"),
        ("CREATE VIEW inbox AS SELECT 'a' AS id", "a view"),
        ("CREATE TABLE inbox (event_id text PRIMARY KEY)", "no column id"),
        ("CREATE TABLE inbox (id text)", once),
        ("CREATE TABLE inbox (id text, topic text, UNIQUE (topic, id))", once),
        ("CREATE TABLE inbox (id text); CREATE UNIQUE INDEX ON inbox (id) WHERE id > 'a'", once),
        ("CREATE TABLE inbox (id text); CREATE UNIQUE INDEX ON inbox (lower(id))", once),
        ("CREATE TABLE inbox (id text UNIQUE DEFERRABLE INITIALLY IMMEDIATE)", once),
        // A key that is equal where the column is not, or the other way round, tells no copies.
        (
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false); \
             CREATE TABLE inbox (id text); CREATE UNIQUE INDEX ON inbox (id COLLATE ci)",
            once,
        ),
        (
            "CREATE TABLE inbox (id text PRIMARY KEY); CREATE TABLE inbox_old () INHERITS (inbox)",
            "other tables inherit from it",
        ),
        (
            "CREATE TABLE inbox (id text PRIMARY KEY); CREATE RULE skip AS ON INSERT TO inbox DO INSTEAD NOTHING",
            "a rule",
        ),
        ("CREATE TABLE inbox (id text GENERATED ALWAYS AS ('a') STORED PRIMARY KEY)", "is generated"),
        // 16 bytes of a UUID are not the bytes of its text.
        (
            "CREATE TABLE inbox (id bytea PRIMARY KEY); INSERT INTO inbox SELECT uuid_send(gen_random_uuid())",
            "not written as oncebox would",
        ),
        ("CREATE TABLE inbox (id int PRIMARY KEY)", "of type integer"),
        ("CREATE TABLE inbox (id text PRIMARY KEY, kind text NOT NULL)", "set = { kind ="),
    ] {
        let errors = errors_of(tables, adopt("inbox", "id")).await;
        assert!(errors.len() == 1 && errors[0].contains(said), "{tables}: {errors:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_column_for_consumers_must_hold_their_names() {
    let mapping = || adopt("inbox", "id").consumer("consumer").unwrap();
    for (kind, said) in
        [("integer", "holds no text"), ("uuid", "holds no text"), ("varchar(4)", "4 characters")]
    {
        let table = format!("CREATE TABLE inbox (id text PRIMARY KEY, consumer {kind})");
        let errors = errors_of(&table, mapping()).await;
        assert!(errors.len() == 1 && errors[0].contains(said), "{kind}: {errors:?}");
        let shop = Shop::new(&table, mapping()).await;
        let error = shop.claim("stock", &ids(&["a"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Environment, "no message is to blame: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_worth_a_look_is_told() {
    let table = "CREATE TABLE inbox (id text PRIMARY KEY, at timestamptz); INSERT INTO inbox VALUES ('a', NULL); \
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; \
         CREATE TRIGGER t BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION f()";
    let shop = Shop::new(table, adopt("inbox", "id").processed_at("at").unwrap()).await;
    let findings = shop.store.check_adopted(ONE).await.unwrap();
    let said: Vec<_> = findings.iter().map(|finding| finding.detail.as_str()).collect();
    assert!(said.iter().any(|said| said.contains("its trigger t")), "{said:?}");
    assert!(said.iter().any(|said| said.contains("some rows have no at")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_does_is_described() {
    let tables = "CREATE SCHEMA shop; CREATE DOMAIN event AS uuid; \
         CREATE TABLE shop.inbox (number bigint GENERATED ALWAYS AS IDENTITY, id event, consumer text NOT NULL, \
         kind text NOT NULL DEFAULT '', at date, PRIMARY KEY (number)); \
         CREATE UNIQUE INDEX ON shop.inbox (id, consumer) INCLUDE (at)";
    let mapping = adopt("shop.inbox", "id").consumer("consumer").unwrap().processed_at("at").unwrap();
    let shop = Shop::new(tables, mapping).await;
    let findings = shop
        .store
        .check_adopted(AdoptedUse { consumers: 2, tenants: false, longest_consumer: 5 })
        .await
        .unwrap();
    let lines: Vec<_> = findings.iter().map(|f| (f.level, f.detail.as_str())).collect();
    assert_eq!(
        lines,
        [
            (FindingLevel::Ok, "receipts go here; ids as UUIDs, unique by (id, consumer)"),
            (FindingLevel::Warning, "no column for tenants is mapped: messages with a tenant are refused"),
            (
                FindingLevel::Warning,
                "the column at is of type date, which is no time: nothing is purged, and `retention` has no effect"
            ),
        ]
    );
    let own = PgStore::connect(&shop.database.url).await.unwrap();
    assert_eq!(own.check_adopted(ONE).await.unwrap(), []);
    assert_eq!(shop.store.adopted().map(ToString::to_string).as_deref(), Some("shop.inbox"));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_are_named() {
    let mapping = adopt("inbox", "id").processed_at("at").unwrap();
    let shop = Shop::new("CREATE TABLE inbox (id text PRIMARY KEY, at timestamptz)", mapping.clone()).await;
    let role = format!("{}_guest", shop.database.name);
    shop.run(&format!("CREATE ROLE {role} LOGIN; GRANT SELECT, INSERT ON inbox TO {role}")).await;
    let url = shop.database.url.replace("//postgres@", &format!("//{role}@"));
    let guest = PgStore::builder(&url).adopt(mapping).connect().await.unwrap();
    let findings = guest.check_adopted(ONE).await.unwrap();
    shop.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    assert!(findings[0].detail.contains("may not UPDATE, DELETE"), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_wrong_stops_everything_until_it_is_mended() {
    let shop = Shop::new("", adopt("inbox", "id")).await;
    let trouble = async |said: &str| {
        let error = shop.claim("stock", &ids(&["a"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Environment, "no message is to blame: {error}");
        assert!(error.to_string().contains(said), "{error}");
    };
    trouble("no such table").await;
    shop.run("CREATE TABLE inbox (id text PRIMARY KEY)").await;
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
    // While it runs: the key goes, the type changes, the table is replaced.
    shop.run("ALTER TABLE inbox DROP CONSTRAINT inbox_pkey").await;
    trouble("ON CONFLICT").await;
    trouble("CREATE UNIQUE INDEX").await;
    shop.run("CREATE UNIQUE INDEX ON inbox (id)").await;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![false, true], vec![]));
    // A column that nothing fills.
    shop.run("ALTER TABLE inbox ADD kind text DEFAULT ''; ALTER TABLE inbox ALTER kind SET NOT NULL, ALTER kind DROP DEFAULT")
        .await;
    trouble("nothing fills the column kind").await;
    shop.run("ALTER TABLE inbox DROP kind").await;
    // A trigger that drops what is written: what is not there is not known.
    shop.run(
        "CREATE FUNCTION drop_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER t BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION drop_it()",
    )
    .await;
    let error = shop.claim("stock", &ids(&["c"])).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Environment, "{error}");
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![false], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_ids_needs_no_table() {
    let shop = Shop::new("", adopt("inbox", "id")).await;
    let claimed = claim(&shop.store, "stock", &[]).await.unwrap();
    shop.store.commit(claimed.txn, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_mix_consumers_or_tenants_is_refused() {
    let shop = Shop::new("CREATE TABLE inbox (id text PRIMARY KEY)", adopt("inbox", "id")).await;
    let errors = async |usage: AdoptedUse| -> Vec<String> {
        let findings = shop.store.check_adopted(usage).await.unwrap();
        findings.into_iter().filter(|f| f.level == FindingLevel::Error).map(|f| f.detail).collect()
    };
    assert_eq!(errors(ONE).await, [""; 0]);
    let two = errors(AdoptedUse { consumers: 2, ..ONE }).await;
    assert!(two.len() == 1 && two[0].contains("serves one consumer, and 2 are"), "{two:?}");
    let tenants = errors(AdoptedUse { tenants: true, ..ONE }).await;
    assert!(tenants.len() == 1 && tenants[0].contains("does not tell tenants apart"), "{tenants:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_how_many_receipts_the_adopted_table_has() {
    let shop = Shop::new("CREATE TABLE inbox (id text PRIMARY KEY)", adopt("inbox", "id")).await;
    shop.run("INSERT INTO inbox VALUES ('old-1'), ('old-2')").await;
    shop.apply("stock", &ids(&["a", "b", "old-1"])).await;
    // It is what the server's statistics say.
    shop.run("ANALYZE inbox").await;
    assert_eq!(shop.store.status(1000).await.unwrap().receipts_estimate, 4);
}
