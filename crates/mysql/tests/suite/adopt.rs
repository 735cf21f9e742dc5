//! Tables that people wrote by hand, taken over as they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::message::Record;
use oncebox_core::names::{MessageId, Tenant};
use oncebox_core::store::{
    AdoptedUse, Adopting, Claim, Claimed, CopyFrom, DeadFilter, DeadLetter, DeadLetters, ErrorClass,
    FindingLevel, PageMark, Status, Store, Switched,
};
use oncebox_mysql::MysqlStore;
use sqlx::{Connection, MySqlConnection};

use super::shop::{Shop, adopt, claim, ids};
use super::support::consumer;

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const OTHER: &str = "01890a5d-ac96-774b-bcce-b302099a8058";
const ONE: AdoptedUse = AdoptedUse { consumers: 1, tenants: false, longest_consumer: 5 };
const DUPLICATE_KEY: &str = "23000";

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_will_not_do_is_refused_with_the_reason() {
    let once = "CREATE UNIQUE INDEX inbox_once ON `inbox` (`id`)";
    for (tables, said) in [
        ("", "no such table"),
        ("CREATE VIEW inbox AS SELECT 'a' AS id", "a view"),
        ("CREATE TABLE inbox (event_id VARCHAR(100) PRIMARY KEY)", "no column id"),
        ("CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY) ENGINE = MyISAM", "knows no transactions"),
        ("CREATE TABLE inbox (id VARCHAR(100))", once),
        ("CREATE TABLE inbox (id VARCHAR(100), UNIQUE KEY (id(50)))", once),
        ("CREATE TABLE inbox (id VARCHAR(100), topic VARCHAR(100), UNIQUE KEY (topic, id))", once),
        ("CREATE TABLE inbox (id BIGINT PRIMARY KEY)", "of type bigint"),
        ("CREATE TABLE inbox (id BINARY(20) PRIMARY KEY)", "of type binary"),
        ("CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY, kind INT NOT NULL)", "set = { kind ="),
    ] {
        let shop = Shop::new(tables, adopt("inbox", "id")).await;
        let findings = shop.store.check_adopted(ONE).await.unwrap();
        let errors: Vec<_> = findings.iter().filter(|f| f.level == FindingLevel::Error).collect();
        assert!(errors.len() == 1 && errors[0].detail.contains(said), "{tables}: {errors:?}");
        let error = claim(&shop.store, "stock", &ids(&["a"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Environment, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_uuid_column_knows_all_spellings() {
    let (upper, simple) = (ID.to_uppercase(), ID.replace('-', ""));
    for (kind, read, stored) in [
        ("CHAR(32)", "event_id", simple.clone()),
        ("BINARY(16)", "LOWER(HEX(event_id))", simple.clone()),
        ("UUID", "CAST(event_id AS CHAR)", ID.to_owned()),
    ] {
        if kind == "UUID" && crate::SERVER != "ONCEBOX_TEST_MARIADB" {
            continue;
        }
        let table = format!("CREATE TABLE inbox (event_id {kind} PRIMARY KEY)");
        let shop = Shop::new(&table, adopt("inbox", "event_id")).await;
        let batch = ids(&[&upper, "order-1", ID, &simple]);
        assert_eq!(shop.apply("stock", &batch).await, (vec![true, false, false, false], vec![1]), "{kind}");
        assert_eq!(shop.apply("stock", &ids(&[ID, OTHER])).await, (vec![false, true], vec![]), "{kind}");
        assert_eq!(shop.texts(&format!("SELECT {read} FROM inbox ORDER BY 1 LIMIT 1")).await, [stored]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_are_there_say_how_they_are_written() {
    for (kind, old) in [
        ("BINARY(16)", "0x774BAC9601890A5DBCCEB302099A8057"),
        ("BINARY(16)", "0x5D0A890196AC0B7FBCCEB302099A8057"),
        ("CHAR(32)", "'01ARZ3NDEKTSV4RRFFQ69G5FAV'"),
        ("VARBINARY(64)", "0x01890A5DAC96774BBCCEB302099A8057"),
    ] {
        let table = format!("CREATE TABLE inbox (id {kind} PRIMARY KEY); INSERT INTO inbox VALUES ({old})");
        let shop = Shop::new(&table, adopt("inbox", "id")).await;
        let findings = shop.store.check_adopted(ONE).await.unwrap();
        assert!(findings[0].detail.contains("not written as oncebox would"), "{kind}: {findings:?}");
    }
    let mapping = adopt("inbox", "id").id_format("uuid-bytes".parse().unwrap());
    let table = "CREATE TABLE inbox (id VARBINARY(64) PRIMARY KEY); INSERT INTO inbox VALUES (0x01890A5DAC96774BBCCEB302099A8057)";
    let shop = Shop::new(table, mapping).await;
    assert_eq!(shop.apply("stock", &ids(&[&ID.to_uppercase(), OTHER])).await, (vec![false, true], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_goes_while_it_runs_is_noticed() {
    let shop = Shop::new("CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY)", adopt("inbox", "id")).await;
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
    shop.run("ALTER TABLE inbox DROP PRIMARY KEY").await;
    for said in ["", "CREATE UNIQUE INDEX"] {
        let error = claim(&shop.store, "stock", &ids(&["b"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Environment, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    shop.run("CREATE UNIQUE INDEX once ON inbox (id)").await;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![false, true], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_the_character_set_lacks_is_the_messages_fault() {
    for set in ["latin1", "utf8mb3"] {
        let table = format!("CREATE TABLE inbox (id VARCHAR(100) CHARACTER SET {set} PRIMARY KEY)");
        let shop = Shop::new(&table, adopt("inbox", "id")).await;
        let error = claim(&shop.store, "stock", &ids(&["a", "order-\u{1F4E6}"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Failed, "{set}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_name_nobody_are_known() {
    let table = "CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY, consumer VARCHAR(100), tenant VARCHAR(100)); \
         INSERT INTO inbox (id) VALUES ('a')";
    let mapping = adopt("inbox", "id").consumer("consumer").unwrap().tenant("tenant").unwrap();
    let shop = Shop::new(table, mapping).await;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![false, true], vec![]));
    assert_eq!(shop.apply("stock", &[("acme", "a", &[])]).await, (vec![false], vec![0]), "of no tenant");
    shop.run("CREATE TRIGGER t BEFORE INSERT ON inbox FOR EACH ROW SET NEW.id = LOWER(NEW.id)").await;
    let findings = shop.store.check_adopted(ONE).await.unwrap();
    assert!(findings.iter().any(|finding| finding.detail.contains("its trigger t")), "{findings:?}");
    let mapping = adopt("inbox", "id").consumer("consumer").unwrap();
    let narrow = "CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY, consumer VARCHAR(4) NOT NULL)";
    let shop = Shop::new(narrow, mapping).await;
    let error = claim(&shop.store, "stock", &ids(&["a"])).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Environment, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_mix_consumers_or_tenants_is_refused() {
    let shop = Shop::new("CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY)", adopt("inbox", "id")).await;
    let errors = async |usage: AdoptedUse| -> Vec<String> {
        let findings = shop.store.check_adopted(usage).await.unwrap();
        findings.into_iter().filter(|f| f.level == FindingLevel::Error).map(|f| f.detail).collect()
    };
    assert_eq!(errors(ONE).await, [""; 0]);
    let two = errors(AdoptedUse { consumers: 2, ..ONE }).await;
    assert!(two.len() == 1 && two[0].contains("serves one consumer, and 2 are"), "{two:?}");
    let tenants = errors(AdoptedUse { tenants: true, ..ONE }).await;
    assert!(tenants.len() == 1 && tenants[0].contains("does not tell tenants apart"), "{tenants:?}");
    // And whoever does not ask before.
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
    let other = claim(&shop.store, "billing", &ids(&["a"])).await.unwrap_err();
    assert_eq!(other.class, ErrorClass::Environment, "{other}");
    assert_eq!(shop.apply("stock", &[("acme", "b", &[])]).await, (vec![false], vec![0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_the_receipts_of_the_adopted_table() {
    let shop = Shop::new("CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY)", adopt("inbox", "id")).await;
    assert_eq!(shop.store.status(1000).await.unwrap().receipts_estimate, 0);
    shop.run("INSERT INTO inbox VALUES ('old-1'), ('old-2')").await;
    shop.apply("stock", &ids(&["a", "b", "old-1"])).await;
    assert_eq!(shop.store.status(1000).await.unwrap().receipts_estimate, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_id_is_a_place_like_any_other() {
    let table = "CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY, at DATETIME); INSERT INTO inbox VALUES ('', '2001-02-03')";
    let mapping = adopt("inbox", "id").processed_at("at").unwrap();
    let shop = Shop::new(table, mapping.clone()).await;
    let from = CopyFrom { adopt: &mapping, consumer: Some(&consumer()), dry_run: true };
    let (mut next, mut pages) = (Some(PageMark::default()), 0);
    while let Some(page) = next.filter(|_| pages < 5) {
        next = shop.store.copy_receipts(from, &page).await.unwrap().next;
        pages += 1;
    }
    assert_eq!(pages, 1);
    assert_eq!(shop.purge().await.receipts, 1);
    // A place in another table is none in this one.
    shop.run(
        "UPDATE oncebox_purge SET at_key = 0xFFFEFD, done = 7; INSERT INTO inbox VALUES ('a', '2001-02-03')",
    )
    .await;
    assert_eq!(shop.purge().await.receipts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timestamp_is_written_in_the_time_zone_of_the_session() {
    let table = "CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY, at TIMESTAMP NULL)";
    let shop = Shop::new(table, adopt("inbox", "id").processed_at("at").unwrap()).await;
    let mut conn = shop.connect().await;
    sqlx::raw_sql("SET time_zone = '+05:00'").execute(&mut conn).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let key = ReceiptKey::of(&consumer(), &Tenant::none(), &MessageId::new("a").unwrap());
    let claims = [Claim { key, tenant: "", message_id: "a", set: &[], fingerprint: None }];
    assert_eq!(shop.store.claim_within(&mut tx, &consumer(), &claims).await.unwrap(), [true]);
    tx.commit().await.unwrap();
    let off = shop.texts("SELECT id FROM inbox WHERE ABS(TIMESTAMPDIFF(SECOND, at, NOW())) > 600").await;
    assert_eq!(off, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_a_collation_holds_to_be_the_same_are_told() {
    for collation in ["utf8mb4_general_ci", "utf8mb4_bin"] {
        let table = format!(
            "CREATE TABLE inbox (id VARCHAR(20) COLLATE {collation} PRIMARY KEY) CHARACTER SET utf8mb4"
        );
        let shop = Shop::new(&table, adopt("inbox", "id")).await;
        assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![true, true], vec![]), "{collation}");
        let (other, expected) = if collation.ends_with("_ci") { ("A", vec![0]) } else { ("a ", vec![0]) };
        let again = shop.apply("stock", &ids(&[other, "b", "c"])).await;
        assert_eq!(again, (vec![false, false, true], expected), "{collation}");
        assert_eq!(shop.apply("stock", &ids(&[&"x".repeat(21)])).await, (vec![false], vec![0]), "too long");
        // Both new and in one batch: the engine cuts it, and each is told apart alone.
        let both = claim(&shop.store, "stock", &ids(&["d", if other == "A" { "D" } else { "d " }])).await;
        assert_eq!(both.unwrap_err().class, ErrorClass::Failed, "{collation}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_tenants_and_further_columns() {
    let table = "CREATE TABLE inbox (id VARCHAR(50) PRIMARY KEY, consumer VARCHAR(50))";
    let shop = Shop::new(table, adopt("inbox", "id").consumer("consumer").unwrap()).await;
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
    assert_eq!(
        shop.apply("billing", &ids(&["a", "b"])).await,
        (vec![false, true], vec![0]),
        "the key has the id alone"
    );

    let table = "CREATE TABLE inbox (id VARCHAR(50), shop BIGINT, kind ENUM('paid') NOT NULL, at TIMESTAMP, \
         PRIMARY KEY (shop, id))";
    let mapping =
        adopt("inbox", "id").tenant("shop").unwrap().set("kind", "header:type".parse().unwrap()).unwrap();
    let shop = Shop::new(table, mapping).await;
    let (paid, lost, none) = ([Some("paid".to_owned())], [Some("lost".to_owned())], [None]);
    let messages = [("1", "a", &paid[..]), ("2", "a", &paid[..]), ("1", "b", &none[..])];
    assert_eq!(shop.apply("stock", &messages).await, (vec![true, true, false], vec![2]));
    assert_eq!(
        shop.apply("stock", &[("1", "a", &paid), ("3", "a", &paid)]).await,
        (vec![false, true], vec![])
    );
    for wrong in [[("1", "c", &lost[..])], [("acme", "c", &paid[..])]] {
        let error = claim(&shop.store, "stock", &wrong).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Failed, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_are_purged_and_those_of_letters_stay() {
    for (kind, old) in [("CHAR(32)", OTHER.replace('-', "")), ("BINARY(16)", String::new())] {
        let table = format!("CREATE TABLE inbox (id {kind} PRIMARY KEY, at TIMESTAMP NULL)");
        let shop = Shop::new(&table, adopt("inbox", "id").processed_at("at").unwrap()).await;
        let upper = ID.to_uppercase();
        let mut claimed = claim(&shop.store, "stock", &ids(&[&upper, OTHER])).await.unwrap();
        let letter = DeadLetter {
            tenant: Tenant::none(),
            message_id: Some(upper.clone()),
            record: Record::at("orders", 0, 7),
            error: "no such stock".to_owned(),
            attempts: 5,
        };
        shop.store.park(&mut claimed.txn, &consumer(), &[letter]).await.unwrap();
        shop.store.commit(claimed.txn, None).await.unwrap();
        shop.run("UPDATE inbox SET at = at - INTERVAL 2 DAY").await;
        assert_eq!(shop.purge().await.receipts, 1, "{kind} {old}");
        assert_eq!(shop.apply("stock", &ids(&[ID])).await, (vec![false], vec![]), "{kind}");
        let listed =
            shop.store.dead_letters(&DeadFilter { limit: 10, ..DeadFilter::default() }).await.unwrap();
        let (txn, _) = shop.store.take_dead(listed[0].number).await.unwrap().unwrap();
        shop.store.commit(txn, None).await.unwrap();
        assert_eq!(shop.purge().await.receipts, 0, "the replay has made it young: {kind}");
        assert_eq!(shop.apply("stock", &ids(&[ID, OTHER])).await, (vec![false, true], vec![]), "{kind}");
    }
    // Two tenants have the same id, and one of them a dead letter.
    let table =
        "CREATE TABLE inbox (id VARCHAR(50), tenant VARCHAR(50), at DATETIME, PRIMARY KEY (id, tenant))";
    let mapping = adopt("inbox", "id").tenant("tenant").unwrap().processed_at("at").unwrap();
    let shop = Shop::new(table, mapping).await;
    let mut claimed = claim(&shop.store, "stock", &[("a", "x", &[]), ("b", "x", &[])]).await.unwrap();
    let letter = DeadLetter {
        tenant: Tenant::new("a").unwrap(),
        message_id: Some("x".to_owned()),
        record: Record::at("orders", 0, 7),
        error: "no such stock".to_owned(),
        attempts: 5,
    };
    shop.store.park(&mut claimed.txn, &consumer(), &[letter]).await.unwrap();
    shop.store.commit(claimed.txn, None).await.unwrap();
    shop.run("UPDATE inbox SET at = at - INTERVAL 2 DAY").await;
    assert_eq!(shop.purge().await.receipts, 1);
    assert_eq!(shop.texts("SELECT tenant FROM inbox").await, ["a"]);
}

/// The ways in which the pattern is written.
#[derive(Debug, Clone, Copy)]
enum Old {
    Ignore,
    CatchViolation,
    LookFirst,
}

const WAYS: [Old; 3] = [Old::Ignore, Old::CatchViolation, Old::LookFirst];

impl Old {
    /// Whether the message is to be applied. The transaction is open then, and closed otherwise.
    async fn begin(self, conn: &mut MySqlConnection, id: &str) -> sqlx::Result<bool> {
        sqlx::raw_sql("START TRANSACTION").execute(&mut *conn).await?;
        let fresh = match self {
            Self::Ignore => {
                let insert = "INSERT IGNORE INTO inbox_messages (message_id) VALUES (?)";
                sqlx::query(insert).bind(id).execute(&mut *conn).await?.rows_affected() == 1
            }
            Self::CatchViolation => insert(conn, id).await?,
            Self::LookFirst => {
                let look = "SELECT EXISTS (SELECT 1 FROM inbox_messages WHERE message_id = ?)";
                let seen: bool = sqlx::query_scalar(look).bind(id).fetch_one(&mut *conn).await?;
                !seen && insert(conn, id).await?
            }
        };
        if !fresh {
            sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
        }
        Ok(fresh)
    }

    async fn apply(self, conn: &mut MySqlConnection, id: &str) -> sqlx::Result<bool> {
        let fresh = self.begin(conn, id).await?;
        if fresh {
            effect(conn, id).await?;
            sqlx::raw_sql("COMMIT").execute(conn).await?;
        }
        Ok(fresh)
    }

    /// Until no deadlock is in the way, as the old code's broker would deliver the message again.
    async fn apply_at_last(self, conn: &mut MySqlConnection, id: &str) -> bool {
        loop {
            match self.apply(conn, id).await {
                Ok(fresh) => return fresh,
                Err(e) if is_transient(&e) => {
                    sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await.unwrap();
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

fn is_transient(error: &sqlx::Error) -> bool {
    MysqlStore::classify(error) == ErrorClass::Transient
}

/// False for a unique violation.
async fn insert(conn: &mut MySqlConnection, id: &str) -> sqlx::Result<bool> {
    let insert = "INSERT INTO inbox_messages (message_id) VALUES (?)";
    match sqlx::query(insert).bind(id).execute(conn).await {
        Err(sqlx::Error::Database(e)) if e.code().as_deref() == Some(DUPLICATE_KEY) => Ok(false),
        other => other.map(|_| true),
    }
}

async fn effect(conn: &mut MySqlConnection, id: &str) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO effects (id) VALUES (?)").bind(id).execute(conn).await.map(|_| ())
}

/// What oncebox does with a batch; again, if something was in the way.
async fn new_apply(store: &MysqlStore, batch: &[&str]) -> Vec<bool> {
    loop {
        let Claimed { mut txn, fresh, refused, .. } = match claim(store, "stock", &ids(batch)).await {
            Ok(claimed) => claimed,
            Err(e) if e.class == ErrorClass::Transient => continue,
            Err(e) => panic!("{e}"),
        };
        assert_eq!(refused, []);
        for (id, _) in batch.iter().zip(&fresh).filter(|(_, fresh)| **fresh) {
            effect(&mut txn, id).await.unwrap();
        }
        match store.commit(txn, None).await {
            Ok(()) => return fresh,
            Err(e) if e.class == ErrorClass::Transient => {}
            Err(e) => panic!("{e}"),
        }
    }
}

async fn inbox_messages() -> Shop {
    let table = "CREATE TABLE inbox_messages (message_id VARCHAR(255) PRIMARY KEY, \
         processed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)";
    Shop::new(table, adopt("inbox_messages", "message_id").processed_at("processed_at").unwrap()).await
}

fn once(names: &[&str]) -> BTreeMap<String, usize> {
    names.iter().map(|name| ((*name).to_owned(), 1)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn old_and_new_code_go_by_each_others_end() {
    for old in WAYS {
        let shop = inbox_messages().await;
        let mut conn = shop.connect().await;
        assert!(old.apply(&mut conn, "a").await.unwrap());
        assert_eq!(new_apply(&shop.store, &["a", "b"]).await, [false, true], "{old:?}");
        assert!(!old.apply(&mut conn, "b").await.unwrap(), "{old:?}");
        assert_eq!(shop.effects().await, once(&["a", "b"]), "{old:?}");
        for (end, expected) in [("COMMIT", false), ("ROLLBACK", true)] {
            let shop = inbox_messages().await;
            let mut conn = shop.connect().await;
            assert!(old.begin(&mut conn, "a").await.unwrap());
            let store = shop.store.clone();
            let new = tokio::spawn(async move { new_apply(&store, &["a"]).await });
            effect(&mut conn, "a").await.unwrap();
            sqlx::raw_sql(end).execute(&mut conn).await.unwrap();
            assert_eq!(new.await.unwrap(), [expected], "{old:?} {end}");
            assert_eq!(shop.effects().await, once(&["a"]), "{old:?} {end}");
        }
        for commit in [true, false] {
            let shop = inbox_messages().await;
            let mut claimed = claim(&shop.store, "stock", &ids(&["a"])).await.unwrap();
            effect(&mut claimed.txn, "a").await.unwrap();
            let mut conn = shop.connect().await;
            let waits = tokio::spawn(async move { old.apply_at_last(&mut conn, "a").await });
            if commit {
                shop.store.commit(claimed.txn, None).await.unwrap();
            } else {
                shop.store.rollback(claimed.txn).await;
            }
            assert_eq!(waits.await.unwrap(), !commit, "{old:?}");
            assert_eq!(shop.effects().await, once(&["a"]), "{old:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_under_load_applies_each_message_once() {
    const MESSAGES: usize = 120;
    let shop = inbox_messages().await;
    let names: Vec<String> = (0..MESSAGES).map(|n| format!("order-{n}")).collect();
    let mut tasks = Vec::new();
    for (nth, old) in WAYS.into_iter().enumerate() {
        let (mut names, mut conn) = (names.clone(), shop.connect().await);
        fastrand::Rng::with_seed(nth as u64).shuffle(&mut names);
        tasks.push(tokio::spawn(async move {
            let mut applied = 0;
            for id in &names {
                applied += usize::from(old.apply_at_last(&mut conn, id).await);
            }
            applied
        }));
    }
    for nth in 0..3 {
        let (mut names, store) = (names.clone(), shop.store.clone());
        fastrand::Rng::with_seed(100 + nth).shuffle(&mut names);
        tasks.push(tokio::spawn(async move {
            let mut applied = 0;
            for batch in names.chunks(15) {
                let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
                applied += new_apply(&store, &batch).await.iter().filter(|fresh| **fresh).count();
            }
            applied
        }));
    }
    let mut applied = 0;
    for task in tasks {
        applied += task.await.unwrap();
    }
    let effects = shop.effects().await;
    assert_eq!((applied, effects.len()), (MESSAGES, MESSAGES));
    assert!(effects.values().all(|times| *times == 1), "{effects:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bare_claim_sees_what_was_committed_after_its_snapshot() {
    let shop = inbox_messages().await;
    let mut conn = shop.connect().await;
    let mut tx = conn.begin().await.unwrap();
    sqlx::raw_sql("SELECT COUNT(*) FROM inbox_messages").execute(&mut *tx).await.unwrap();
    assert_eq!(new_apply(&shop.store, &["a"]).await, [true]);
    let claims = ["a", "b"].map(|id| {
        let key = ReceiptKey::of(&consumer(), &Tenant::none(), &MessageId::new(id).unwrap());
        Claim { key, tenant: "", message_id: id, set: &[], fingerprint: None }
    });
    assert_eq!(shop.store.claim_within(&mut tx, &consumer(), &claims).await.unwrap(), [false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_slips_past_the_move_to_our_own_table() {
    let shop = inbox_messages().await;
    let mapping = shop.store.adopted().unwrap().clone();
    let stock = consumer();
    let from = CopyFrom { adopt: &mapping, consumer: Some(&stock), dry_run: false };
    for n in 0..3 {
        let values: Vec<_> = (0..600).map(|m| format!("('old-{n}-{m}', '2026-01-02 03:04:05')")).collect();
        shop.run(&format!("INSERT INTO inbox_messages VALUES {}", values.join(","))).await;
    }
    for (dry_run, expected) in [(true, 1800), (false, 1800), (false, 0)] {
        let (mut next, mut written) = (Some(PageMark::default()), 0);
        while let Some(page) = next {
            let copied = shop.store.copy_receipts(CopyFrom { dry_run, ..from }, &page).await.unwrap();
            written += copied.written;
            next = copied.next;
        }
        assert_eq!(written, expected);
    }
    let written = Arc::new(AtomicUsize::new(0));
    let (mut conn, count) = (shop.connect().await, Arc::clone(&written));
    let old = tokio::spawn(async move {
        loop {
            let nth = count.load(Ordering::SeqCst);
            match insert(&mut conn, &format!("new-{nth}")).await {
                Ok(_) => count.fetch_add(1, Ordering::SeqCst),
                Err(e) => break MysqlStore::classify(&e),
            };
        }
    });
    while written.load(Ordering::SeqCst) < 50 {
        tokio::task::yield_now().await;
    }
    let Switched::Now { name, .. } = shop.store.switch_receipts(from).await.unwrap() else {
        panic!("it was now")
    };
    assert_eq!(name, "inbox_messages_adopted");
    assert_eq!(old.await.unwrap(), ErrorClass::Environment, "the old code fails loudly");
    let lacking = "SELECT message_id FROM inbox_messages_adopted WHERE message_id NOT IN \
         (SELECT CONVERT(message_id USING utf8mb4) COLLATE utf8mb4_general_ci FROM oncebox_inbox WHERE consumer = 'stock' \
          AND inbox_messages_adopted.processed_at = processed_at)";
    assert_eq!(shop.texts(lacking).await, [""; 0]);
    let total = shop.texts("SELECT message_id FROM oncebox_inbox").await.len();
    assert_eq!(total, 1800 + written.load(Ordering::SeqCst));
    assert_eq!(shop.store.switch_receipts(from).await.unwrap(), Switched::Before);
    // A process that ended between the rename and the copying is followed by one that goes on.
    shop.run("INSERT INTO inbox_messages_adopted (message_id) VALUES ('left behind')").await;
    let left = shop.store.switch_receipts(from).await.unwrap();
    assert_eq!(left, Switched::Now { written: 1, name: "inbox_messages_adopted".to_owned() });
}
