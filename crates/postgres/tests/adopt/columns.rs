//! What columns can hold, and what they take for the same.

use std::time::Duration;

use oncebox_core::message::Record;
use oncebox_core::names::{ConsumerName, Tenant};
use oncebox_core::store::{DeadFilter, DeadLetter, DeadLetters, ErrorClass, Store};

use super::{Shop, adopt, ids};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[tokio::test(flavor = "multi_thread")]
async fn a_uuid_is_one_message_however_it_is_spelled() {
    let shop = Shop::new("CREATE TABLE inbox (event_id uuid PRIMARY KEY)", adopt("inbox", "event_id")).await;
    let (upper, simple) = (ID.to_uppercase(), ID.replace('-', ""));
    assert_eq!(
        shop.apply("stock", &ids(&[&upper, "order-1", ID, &simple])).await,
        (vec![true, false, false, false], vec![1])
    );
    assert_eq!(shop.apply("stock", &ids(&[ID])).await, (vec![false], vec![]));
    assert_eq!(shop.texts("SELECT event_id::text FROM inbox").await, [ID]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_column_cannot_hold_is_refused_and_never_cut() {
    let table = "CREATE TABLE inbox (id varchar(5) PRIMARY KEY)";
    let shop = Shop::new(table, adopt("inbox", "id")).await;
    // PostgreSQL itself would cut the blanks.
    assert_eq!(
        shop.apply("stock", &ids(&["abcde", "abcdef", "abcde ", "äöüäö"])).await,
        (vec![true, false, false, true], vec![1, 2])
    );
    let shop = Shop::new("CREATE TABLE inbox (id char(5) PRIMARY KEY)", adopt("inbox", "id")).await;
    assert_eq!(shop.apply("stock", &ids(&["ab", "ab "])).await, (vec![true, false], vec![1]));
    assert_eq!(shop.apply("stock", &ids(&["ab"])).await, (vec![false], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_a_collation_holds_to_be_the_same_are_told() {
    let caseless =
        "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    let table = format!("{caseless}; CREATE TABLE inbox (id text COLLATE caseless PRIMARY KEY)");
    let shop = Shop::new(&table, adopt("inbox", "id")).await;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![true, true], vec![]));
    assert_eq!(shop.apply("stock", &ids(&["A", "b", "C"])).await, (vec![false, false, true], vec![0]));
    // Both in one batch: one of them is written, the other is not skipped in silence.
    let (fresh, refused) = shop.apply("stock", &ids(&["d", "D"])).await;
    assert_eq!((fresh.iter().filter(|fresh| **fresh).count(), refused.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_hold_any_id() {
    let shop = Shop::new("CREATE TABLE inbox (id bytea PRIMARY KEY)", adopt("inbox", "id")).await;
    let odd = ["a", "A", "a ", "ä", "'", "\\x41"];
    assert_eq!(shop.apply("stock", &ids(&odd)).await, (vec![true; 6], vec![]));
    assert_eq!(shop.apply("stock", &ids(&odd)).await, (vec![false; 6], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_format_says_what_the_type_does_not() {
    let upper = ID.to_uppercase();
    for (kind, format, old) in [
        ("bytea", "uuid-bytes", format!("uuid_send('{ID}')")),
        ("text", "uuid", format!("'{ID}'")),
        ("varchar(32)", "hex", format!("'{}'", ID.replace('-', ""))),
    ] {
        let table = format!(
            "CREATE TABLE inbox (id {kind} PRIMARY KEY, at timestamptz DEFAULT now() - interval '2 days'); \
             INSERT INTO inbox VALUES ({old})"
        );
        let mapping = adopt("inbox", "id").processed_at("at").unwrap().id_format(format.parse().unwrap());
        let shop = Shop::new(&table, mapping).await;
        let other = ID.replace('7', "8");
        assert_eq!(
            shop.apply("stock", &ids(&[&upper, &other])).await,
            (vec![false, true], vec![]),
            "{kind} {format}"
        );
        assert_eq!(shop.apply("stock", &ids(&[&other])).await, (vec![false], vec![]), "{kind} {format}");
        assert_eq!(shop.purge(Duration::from_secs(86_400)).await.receipts, 1, "{kind} {format}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_name_nobody_are_known() {
    let table = "CREATE TABLE inbox (id text PRIMARY KEY, consumer text, tenant text); INSERT INTO inbox VALUES ('a')";
    let mapping = adopt("inbox", "id").consumer("consumer").unwrap().tenant("tenant").unwrap();
    let shop = Shop::new(table, mapping).await;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![false, true], vec![]));
    assert_eq!(shop.apply("stock", &[("acme", "a", &[])]).await, (vec![false], vec![0]), "of no tenant");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_the_consumer_serves_one() {
    let table = "CREATE TABLE inbox (id text PRIMARY KEY, consumer text)";
    let shop = Shop::new(table, adopt("inbox", "id").consumer("consumer").unwrap()).await;
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
    assert_eq!(shop.apply("billing", &ids(&["a", "b"])).await, (vec![false, true], vec![0]));

    let shop = Shop::new("CREATE TABLE inbox (id text PRIMARY KEY)", adopt("inbox", "id")).await;
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
    let other = shop.claim("billing", &ids(&["a"])).await.unwrap_err();
    assert_eq!(other.class, ErrorClass::Environment, "{other}");
    assert_eq!(
        shop.apply("stock", &[("acme", "b", &[])]).await,
        (vec![false], vec![0]),
        "no column for tenants"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_apart_where_the_key_has_them() {
    let table = "CREATE TABLE inbox (id text, tenant_id bigint, PRIMARY KEY (tenant_id, id))";
    let shop = Shop::new(table, adopt("inbox", "id").tenant("tenant_id").unwrap()).await;
    assert_eq!(shop.apply("stock", &[("1", "a", &[]), ("2", "a", &[])]).await, (vec![true, true], vec![]));
    assert_eq!(shop.apply("stock", &[("1", "a", &[]), ("3", "a", &[])]).await, (vec![false, true], vec![]));
    let changed = shop.claim("stock", &[("007", "a", &[])]).await.unwrap_err();
    assert_eq!(changed.class, ErrorClass::Environment, "it would be stored as 7: {changed}");
    let none = shop.claim("stock", &[("acme", "a", &[])]).await.unwrap_err();
    assert_eq!(none.class, ErrorClass::Failed, "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn further_columns_get_what_the_message_says() {
    let table = "CREATE TYPE kind AS ENUM ('paid', 'shipped'); \
         CREATE TABLE inbox (id text PRIMARY KEY, kind kind NOT NULL, amount int, at timestamptz)";
    let mapping = adopt("inbox", "id").set("kind", "header:type".parse().unwrap()).unwrap();
    let mapping = mapping.set("amount", "json:/amount".parse().unwrap()).unwrap().processed_at("at").unwrap();
    let shop = Shop::new(table, mapping).await;
    let text = |text: &str| Some(text.to_owned());
    let (whole, bare, none) = ([text("paid"), text("7")], [text("shipped"), None], [None, text("7")]);
    let messages = [("", "a", &whole[..]), ("", "b", &bare[..]), ("", "c", &none[..])];
    assert_eq!(
        shop.apply("stock", &messages).await,
        (vec![true, true, false], vec![2]),
        "kind must not be NULL"
    );
    assert_eq!(
        shop.texts("SELECT concat_ws('|', id, kind, amount, at IS NOT NULL) FROM inbox ORDER BY id").await,
        ["a|paid|7|t", "b|shipped|t"]
    );
    let wrong = [text("lost"), None];
    let error = shop.claim("stock", &[("", "d", &wrong[..])]).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Failed, "no other message is to blame: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_of_dead_letters_stay_however_they_are_spelled() {
    let table = "CREATE TABLE inbox (id uuid PRIMARY KEY, at timestamp DEFAULT now())";
    let shop = Shop::new(table, adopt("inbox", "id").processed_at("at").unwrap()).await;
    let (upper, other) = (ID.to_uppercase(), "01890a5d-ac96-774b-bcce-b302099a8058");
    let consumer = ConsumerName::new("stock").unwrap();
    let mut claimed = shop.claim("stock", &ids(&[&upper, other])).await.unwrap();
    let letter = DeadLetter {
        tenant: Tenant::none(),
        message_id: Some(upper.clone()),
        record: Record::at("orders", 0, 7),
        error: "no such stock".to_owned(),
        attempts: 5,
    };
    shop.store.park(&mut claimed.txn, &consumer, &[letter]).await.unwrap();
    shop.store.commit(claimed.txn, None).await.unwrap();
    shop.run("UPDATE inbox SET at = at - interval '2 days'").await;
    assert_eq!(shop.purge(Duration::from_secs(86_400)).await.receipts, 1);
    assert_eq!(shop.texts("SELECT id::text FROM inbox").await, [ID]);

    // A replay makes it young again.
    let listed = shop.store.dead_letters(&DeadFilter { limit: 10, ..DeadFilter::default() }).await.unwrap();
    let (txn, _) = shop.store.take_dead(listed[0].number).await.unwrap().unwrap();
    shop.store.commit(txn, None).await.unwrap();
    assert_eq!(shop.purge(Duration::from_secs(86_400)).await.receipts, 0);
    assert_eq!(shop.apply("stock", &ids(&[ID])).await, (vec![false], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_of_partitions_are_purged() {
    let table = "CREATE TABLE inbox (id text PRIMARY KEY, at timestamptz) PARTITION BY HASH (id); \
         CREATE TABLE inbox_0 PARTITION OF inbox FOR VALUES WITH (MODULUS 1, REMAINDER 0) PARTITION BY HASH (id); \
         CREATE TABLE inbox_0_0 PARTITION OF inbox_0 FOR VALUES WITH (MODULUS 1, REMAINDER 0); \
         INSERT INTO inbox VALUES ('old', now() - interval '2 days')";
    let shop = Shop::new(table, adopt("inbox", "id").processed_at("at").unwrap()).await;
    assert_eq!(shop.apply("stock", &ids(&["old", "new"])).await, (vec![false, true], vec![]));
    assert_eq!(shop.purge(Duration::from_secs(86_400)).await.receipts, 1);
    assert_eq!(shop.texts("SELECT id FROM inbox").await, ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_purged_without_a_time() {
    let table = "CREATE TABLE inbox (id text PRIMARY KEY, at bigint NOT NULL DEFAULT 0)";
    for mapping in [adopt("inbox", "id"), adopt("inbox", "id").processed_at("at").unwrap()] {
        let shop = Shop::new(table, mapping).await;
        assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
        assert_eq!(shop.purge(Duration::ZERO).await.receipts, 0);
        assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![false], vec![]));
    }
}
