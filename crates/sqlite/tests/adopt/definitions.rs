//! What is said about a table, and what its columns hold.

use std::time::Duration;

use oncebox_core::clock::Clock;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    Adopt, AdoptedUse, Adopting, ErrorClass, FindingLevel, Purge, PurgePass, Purged, Retention, Status,
};
use tokio_util::sync::CancellationToken;

use super::{Shop, adopt, claim, ids};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const ONE: AdoptedUse = AdoptedUse { consumers: 1, tenants: false, longest_consumer: 5 };

async fn purge(shop: &Shop) -> Purged {
    let retention =
        [Retention { consumer: ConsumerName::new("stock").unwrap(), keep: Duration::from_secs(86_400) }];
    let now_ms = Clock::system().now_ms();
    let (stop, progress) = (CancellationToken::new(), |_| {});
    let pass = PurgePass { retention: &retention, now_ms, dry_run: false, stop: &stop, progress: &progress };
    shop.store.purge(pass).await.unwrap()
}

async fn errors_of(tables: &str, mapping: Adopt) -> Vec<String> {
    let shop = Shop::new(tables, mapping).await;
    let findings = shop.store.check_adopted(ONE).await.unwrap();
    findings.into_iter().filter(|f| f.level == FindingLevel::Error).map(|f| f.detail).collect()
}

#[tokio::test]
async fn a_table_that_will_not_do_is_refused_with_the_reason() {
    let once = r#"CREATE UNIQUE INDEX inbox_once ON "inbox" ("id")"#;
    for (tables, said) in [
        ("", "no such table"),
        ("CREATE VIEW inbox AS SELECT 'a' AS id", "a view"),
        ("CREATE TABLE inbox (event_id TEXT PRIMARY KEY)", "no column id"),
        ("CREATE TABLE inbox (id TEXT)", once),
        ("CREATE TABLE inbox (id TEXT, topic TEXT, UNIQUE (topic, id))", once),
        ("CREATE TABLE inbox (id TEXT); CREATE UNIQUE INDEX once ON inbox (id) WHERE id > 'a'", once),
        ("CREATE TABLE inbox (id TEXT); CREATE UNIQUE INDEX once ON inbox (lower(id))", once),
        ("CREATE TABLE inbox (id TEXT AS ('a') UNIQUE, note TEXT)", "is generated"),
        // Other ways to write a UUID.
        (
            "CREATE TABLE inbox (id BLOB PRIMARY KEY); INSERT INTO inbox VALUES (X'01890A5DAC96774BBCCEB302099A8057')",
            "not written as oncebox would",
        ),
        (
            "CREATE TABLE inbox (id UUID PRIMARY KEY); INSERT INTO inbox VALUES (X'01890A5DAC96774BBCCEB302099A8057')",
            "not written as oncebox would",
        ),
        (
            "CREATE TABLE inbox (id CHAR(32) PRIMARY KEY); INSERT INTO inbox VALUES ('01890A5DAC96774BBCCEB302099A8057')",
            "not written as oncebox would",
        ),
        (
            "CREATE TABLE inbox (id CHAR(32) PRIMARY KEY); INSERT INTO inbox VALUES ('01ARZ3NDEKTSV4RRFFQ69G5FAV')",
            "not written as oncebox would",
        ),
        ("CREATE TABLE inbox (id BIGINT UNIQUE)", "of type BIGINT"),
        ("CREATE TABLE inbox (id STRING PRIMARY KEY)", "of type STRING"),
        ("CREATE TABLE inbox (id TEXT PRIMARY KEY, kind TEXT NOT NULL)", "set = { kind ="),
    ] {
        let errors = errors_of(tables, adopt("inbox", "id")).await;
        assert!(errors.len() == 1 && errors[0].contains(said), "{tables}: {errors:?}");
    }
}

#[tokio::test]
async fn every_kind_of_uuid_column_knows_all_spellings() {
    let (upper, simple) = (ID.to_uppercase(), ID.replace('-', ""));
    for (kind, stored) in [
        ("UUID", format!("'{ID}'")),
        ("char(32)", format!("'{simple}'")),
        ("BINARY(16)", format!("X'{}'", simple.to_uppercase())),
    ] {
        let table = format!("CREATE TABLE inbox (event_id {kind} NOT NULL UNIQUE)");
        let shop = Shop::new(&table, adopt("inbox", "event_id")).await;
        let batch = ids(&[&upper, "order-1", ID, &simple]);
        assert_eq!(shop.apply("stock", &batch).await, (vec![true, false, false, false], vec![1]), "{kind}");
        assert_eq!(shop.apply("stock", &ids(&[ID])).await, (vec![false], vec![]), "{kind}");
        assert_eq!(shop.texts("SELECT quote(event_id) FROM inbox").await, [stored]);
    }
}

#[tokio::test]
async fn ids_that_a_collation_holds_to_be_the_same_are_told() {
    let table = "CREATE TABLE inbox (id TEXT COLLATE NOCASE PRIMARY KEY)";
    let shop = Shop::new(table, adopt("inbox", "id")).await;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![true, true], vec![]));
    assert_eq!(shop.apply("stock", &ids(&["A", "b", "C"])).await, (vec![false, false, true], vec![0]));
}

#[tokio::test]
async fn an_index_with_a_collation_of_its_own_is_asked_by_it() {
    let table = "CREATE TABLE inbox (id TEXT); CREATE UNIQUE INDEX once ON inbox (id COLLATE NOCASE)";
    let shop = Shop::new(table, adopt("inbox", "id")).await;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![true, true], vec![]));
    assert_eq!(shop.apply("stock", &ids(&["A", "b", "C"])).await, (vec![false, false, true], vec![0]));
}

#[tokio::test]
async fn a_format_says_what_the_type_does_not() {
    let mapping = adopt("inbox", "id").id_format("uuid-bytes".parse().unwrap());
    let table = "CREATE TABLE inbox (id BLOB PRIMARY KEY); INSERT INTO inbox VALUES (X'01890A5DAC96774BBCCEB302099A8057')";
    let shop = Shop::new(table, mapping).await;
    assert_eq!(shop.apply("stock", &ids(&[&ID.to_uppercase()])).await, (vec![false], vec![]));
    let mapping = adopt("inbox", "id").id_format("text".parse().unwrap());
    let table = "CREATE TABLE inbox (id CHAR(32) PRIMARY KEY); INSERT INTO inbox VALUES ('01ARZ3NDEKTSV4RRFFQ69G5FAV')";
    let shop = Shop::new(table, mapping).await;
    let batch = ids(&["01ARZ3NDEKTSV4RRFFQ69G5FAV", "order-1"]);
    assert_eq!(shop.apply("stock", &batch).await, (vec![false, true], vec![]));
}

#[tokio::test]
async fn a_table_that_changes_stops_everything() {
    let shop = Shop::new("CREATE TABLE inbox (id TEXT PRIMARY KEY)", adopt("inbox", "id")).await;
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
    // What a trigger drops is not known for that.
    shop.run("CREATE TRIGGER t BEFORE INSERT ON inbox BEGIN SELECT RAISE(IGNORE); END").await;
    let error = claim(&shop.store, "stock", &ids(&["b"])).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Environment, "{error}");
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![false], vec![]));
    shop.run("DROP TABLE inbox; CREATE TABLE inbox (id TEXT PRIMARY KEY, kind TEXT NOT NULL)").await;
    let error = claim(&shop.store, "stock", &ids(&["b"])).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Environment, "{error}");
    assert!(error.to_string().contains("nothing fills the column kind"), "{error}");
}

#[tokio::test]
async fn rows_that_name_nobody_are_known() {
    let table = "CREATE TABLE inbox (id TEXT PRIMARY KEY, consumer TEXT, tenant TEXT); INSERT INTO inbox (id) VALUES ('a')";
    let mapping = adopt("inbox", "id").consumer("consumer").unwrap().tenant("tenant").unwrap();
    let shop = Shop::new(table, mapping).await;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![false, true], vec![]));
    assert_eq!(shop.apply("stock", &[("acme", "a", &[])]).await, (vec![false], vec![0]), "of no tenant");
}

#[tokio::test]
async fn a_key_without_the_consumer_serves_one() {
    let table = "CREATE TABLE inbox (id BLOB PRIMARY KEY, consumer TEXT)";
    let shop = Shop::new(table, adopt("inbox", "id").consumer("consumer").unwrap()).await;
    assert_eq!(shop.apply("stock", &ids(&["a", "A"])).await, (vec![true, true], vec![]));
    assert_eq!(shop.apply("billing", &ids(&["a", "b"])).await, (vec![false, true], vec![0]));

    let shop = Shop::new("CREATE TABLE inbox (id TEXT PRIMARY KEY)", adopt("inbox", "id")).await;
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
    let other = claim(&shop.store, "billing", &ids(&["a"])).await.unwrap_err();
    assert_eq!(other.class, ErrorClass::Environment, "{other}");
    assert_eq!(
        shop.apply("stock", &[("acme", "b", &[])]).await,
        (vec![false], vec![0]),
        "no column for tenants"
    );
}

#[tokio::test]
async fn further_columns_get_what_the_message_says() {
    let table = "CREATE TABLE inbox (number INTEGER PRIMARY KEY, id TEXT UNIQUE, kind TEXT NOT NULL, \
         note TEXT CHECK (note <> 'bad'), data TEXT CHECK (json_array_length(data) > 0))";
    let mapping = adopt("inbox", "id").set("kind", "header:type".parse().unwrap()).unwrap();
    let mapping = mapping.set("note", "key".parse().unwrap()).unwrap();
    let shop = Shop::new(table, mapping.set("data", "header:data".parse().unwrap()).unwrap()).await;
    let text = |text: &str| Some(text.to_owned());
    let (whole, none) = ([text("paid"), None, None], [None, None, None]);
    // What a constraint refuses, and what a function in it cannot read: SQLite has no code for that one.
    let bad = [[text("paid"), text("bad"), None], [text("paid"), None, text("[no JSON")]];
    let messages = [("", "a", &whole[..]), ("", "b", &none[..])];
    assert_eq!(shop.apply("stock", &messages).await, (vec![true, false], vec![1]), "kind must not be NULL");
    for bad in &bad {
        let error = claim(&shop.store, "stock", &[("", "c", &bad[..])]).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Failed, "{error}");
    }
}

#[tokio::test]
async fn times_are_read_as_they_are_written() {
    for (kind, old, young) in [
        ("TEXT", "datetime('now', '-2 days')", "CURRENT_TIMESTAMP"),
        ("DATETIME", "'2001-02-03T04:05:06.789+02:00'", "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"),
        ("INTEGER", "unixepoch('now', '-2 days')", "unixepoch()"),
        ("BIGINT", "unixepoch('now', '-2 days') * 1000", "unixepoch() * 1000"),
        ("DATETIME", "unixepoch('now', '-2 days') * 1000", "unixepoch() * 1000"),
        ("TEXT", "datetime('now', '-2 days')", "'yesterday, or so'"),
    ] {
        let table = format!("CREATE TABLE inbox (id TEXT PRIMARY KEY, at {kind} NOT NULL)");
        let shop = Shop::new(&table, adopt("inbox", "id").processed_at("at").unwrap()).await;
        shop.run(&format!("INSERT INTO inbox VALUES ('old', {old}), ('young', {young})")).await;
        assert_eq!(shop.apply("stock", &ids(&["new"])).await, (vec![true], vec![]));
        assert_eq!(purge(&shop).await.receipts, 1, "{kind} {young}");
        assert_eq!(shop.texts("SELECT id FROM inbox ORDER BY id").await, ["new", "young"], "{kind} {young}");
        assert_eq!(shop.store.status(100).await.unwrap().receipts_estimate, 2);
        // Ours is written as theirs are, so that they sort, and the old code's own cleanup finds it.
        let odd = shop
            .texts(
                "SELECT o.id FROM inbox o JOIN inbox n ON n.id = 'new' WHERE typeof(o.at) <> typeof(n.at) \
                 OR (typeof(o.at) = 'integer' AND length(o.at) <> length(n.at))",
            )
            .await;
        assert_eq!(odd, [""; 0], "{kind} {young}");
    }
    // Nobody knows how old they are.
    for table in ["(id TEXT PRIMARY KEY, at REAL DEFAULT 0)", "(id TEXT PRIMARY KEY, at TEXT) WITHOUT ROWID"]
    {
        let table = format!("CREATE TABLE inbox {table}");
        let shop = Shop::new(&table, adopt("inbox", "id").processed_at("at").unwrap()).await;
        shop.run("INSERT INTO inbox (id) VALUES ('old')").await;
        assert_eq!(purge(&shop).await.receipts, 0, "{table}");
    }
}
