//! What only MongoDB has: servers that will not do, operations instead of SQL, and a user who may do nothing outside of its database.

use std::time::Duration;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Claim, Claimed, Store, StoreResult};
use oncebox_mongodb::{MongoStore, MongoTx};
use serde_json::Value;

use crate::support::config::Inbox;
use crate::support::database::{Kind, PASSWORD};
use crate::support::mongo_set::{Alone, Hasty, WithUsers};
use crate::support::orders::orders;
use crate::support::world::World;

const WRONG: &str = "wrong-canary";

/// Without a set there are no transactions. Whoever starts one is told what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_alone_is_refused_with_what_to_do() {
    let mut world = World::new(Kind::Mongodb, 1).await;
    let alone = Alone::start().await;
    let words = ["stands alone", "--replSet", "rs.initiate()", "?replicaSet="];
    world.config.store = alone.url("shop");
    for command in [&["run"][..], &["migrate"], &["status"]] {
        world.oncebox(command).exits(5).says(&words);
    }
    let checked = world.oncebox(&["check"]).exits(1);
    for word in words {
        assert!(checked.stdout.contains(word), "{checked}");
    }
    // Also whoever has read half of it.
    world.config.store += "?replicaSet=rs0&serverSelectionTimeoutMS=1000";
    world.oncebox(&["migrate"]).exits(5).says(&words);
}

/// In a loop of your own, where nobody has looked at the server before.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_on_a_server_that_stands_alone_writes_no_receipt() {
    let alone = Alone::start().await;
    let store = MongoStore::builder(&alone.url("shop")).connect_lazy().await.expect("a URL");
    let client = mongodb::Client::with_uri_str(alone.url("shop")).await.expect("a URL");
    let mut session = client.start_session().await.expect("a session");
    session.start_transaction().await.expect("the driver does not know yet that there are none");
    let mut tx = MongoTx::new(session, client.database("shop"));
    let (consumer, key) = receipt();
    let claims = [Claim { key, tenant: "", message_id: "a", set: &[], fingerprint: None }];
    let error = store.claim_within(&mut tx, &consumer, &claims).await.expect_err("it is refused");
    assert!(error.to_string().contains("--replSet"), "{error}");
    let inbox = client.database("shop").collection::<mongodb::bson::Document>("oncebox_inbox");
    assert_eq!(inbox.count_documents(mongodb::bson::doc! {}).await.expect("a count"), 0);
}

/// A name that is not the set's, and a set that is not made yet: the driver finds no server, and cannot say why.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_of_another_name_is_told_from_one_that_is_away() {
    let mut world = World::new(Kind::Mongodb, 1).await;
    let (base, options) = world.db.url.split_once('?').expect("a URL with options");
    let options = options.replace("directConnection=true", "replicaSet=elsewhere");
    world.config.store = format!("{base}?{options}");
    world.oncebox(&["migrate"]).exits(5).says(&["the URL names elsewhere", "?replicaSet="]);
    let early = Alone::start_with(&["--replSet", "early"]).await;
    world.config.store = format!("{}?replicaSet=early&serverSelectionTimeoutMS=1000", early.url("shop"));
    world.oncebox(&["migrate"]).exits(4).says(&["not made yet", "rs.initiate()"]);
}

/// SQL where operations belong, and the other way round: the line, and what to write instead.
#[tokio::test(flavor = "multi_thread")]
async fn statements_of_another_database_are_refused_with_their_line() {
    let mut world = World::new(Kind::Mongodb, 1).await;
    for (statement, words) in [
        ("\"UPDATE stock SET on_hand = 0\"", ["does not speak SQL", "{ update = "]),
        ("{ sql = \"DELETE FROM stock\", rows = 1 }", ["does not speak SQL", "{ update = "]),
        ("{ delete = \"stock\", filter = { _id = \":idd\" } }", [":idd", ":id"]),
        (
            "{ update = \"stock\", filter = { _id = \":id\" }, with = { \"$incr\" = { n = 1 } } }",
            ["$incr", "$inc"],
        ),
        ("{ insert = \"ledgr\", document = { _id = \":id\" } }", ["ledgr", "collection"]),
    ] {
        world.config.inboxes = vec![Inbox::new("stock", &world.topic.name, vec![statement.to_owned()])];
        let refused = world.oncebox(&["run"]).says(&words);
        assert!(matches!(refused.code, Some(3 | 5)), "{refused}");
    }
}

/// Everything that a daemon does, as a user who may read and write in one database. The server ends no transaction by itself, so those
/// of processes that were killed are in the way until such a user ends them.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_a_password_who_may_work_in_one_database() {
    let server = WithUsers::start().await;
    let mut world = World::of_user(&server, 2).await;
    world.config.with_static_membership();
    world.outbox("relay", "true");
    world.oncebox(&["migrate"]).exits(0);
    let checked = world.oncebox(&["check", "--output", "json"]);
    let errors = |answer: &Value| {
        let findings = answer.as_array().cloned().unwrap_or_default();
        findings.into_iter().filter(|finding| finding["level"] == "error").collect::<Vec<_>>()
    };
    assert_eq!(errors(&checked.json()), [Value::Null; 0], "{checked}");
    assert!(
        checked.stdout.contains("not authorized") && checked.stdout.contains("clusterMonitor"),
        "{checked}"
    );

    let mut sent = 0;
    for step in ["after-claim:1", "before-handler:4", "after-handler:1", "after-handler:5", "after-commit:2"]
    {
        world.topic.send(&orders(sent..sent + 240));
        sent += 240;
        world.start_to_crash(step).crashed();
        let daemon = world.start_with(&["--log", "debug"], &[]);
        world.caught_up().await;
        world.has_exactly(&orders(0..sent)).await;
        if step.starts_with("after-claim") || step.starts_with("after-handler") {
            daemon.has_logged("ended transactions of a process that is gone").await;
        }
        // Not killed: the next one would begin with copies that the group does not know of, and die in a batch that writes nothing.
        assert!(!daemon.stop().contains(PASSWORD), "the password is in the log");
    }
    assert_eq!(world.dead("message_id").await, [""; 0], "no message is to blame");
    let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
    assert_eq!(status["consumers"][0]["applied"], sent, "{status:#}");
    world.oncebox(&["purge"]).exits(0);
    world.oncebox(&["position", "list"]).exits(0);

    // Whoever has forgotten the password, or is somewhere else, is told so, and shown none.
    let wrong = world.db.url.replace(PASSWORD, WRONG);
    let (before, host) = wrong.rsplit_once('@').expect("a password");
    let away = format!(
        "{before}@127.0.0.1:1/{}&serverSelectionTimeoutMS=1000",
        host.split_once('/').expect("a path").1
    );
    for (url, exit, word) in [(wrong.clone(), 5, "uthentication"), (away, 4, "127.0.0.1:1")] {
        world.config.store = url;
        let refused = world.oncebox(&["status", "--log", "debug"]).exits(exit).says(&[word]);
        assert!(!refused.to_string().contains(WRONG), "{refused}");
    }
}

/// The server ends the transaction in the middle of it, every time: the message is given up in the end, and no other with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_takes_longer_than_a_transaction_may_is_not_tried_for_ever() {
    const SLOW: i64 = 777;
    let server = Hasty::start().await;
    let mut world = World::on_hasty(&server, 1).await;
    let never = "{ \"$function\" = { body = \"function() { while (true) {} }\", args = [], lang = \"js\" } }";
    let takes_long = format!("{{ \"$cond\" = [{{ \"$eq\" = [\"$payload.qty\", {SLOW}] }}, {never}, 0] }}");
    let insert = format!(
        "{{ messages = [ {{ \"$set\" = {{ waited = {takes_long} }} }} ], insert = \"ledger\", \
         document = {{ message_id = \":row.id\", waited = \":row.waited\" }} }}"
    );
    let inbox = Inbox::new(&world.consumer, &world.topic.name, vec![insert]).in_batches();
    world.config.inboxes = vec![inbox.set("batch", "{ messages = 2 }")];
    let mut sent = orders(0..9);
    sent[4].qty = SLOW;
    world.topic.send(&sent);
    let daemon = world.start();
    world.caught_up().await;
    assert_eq!(world.dead("message_id").await, [sent[4].id.as_str()]);
    assert_eq!(world.effects().await, 8);
    daemon.stop();
}

/// Its transactions are seen by processes of the same user, and left alone as long as it lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_lives_keeps_its_transaction_from_others_of_the_same_user() {
    let server = WithUsers::start().await;
    let world = World::of_user(&server, 1).await;
    world.oncebox(&["migrate"]).exits(0);
    let first = MongoStore::connect(&world.db.url).await.expect("a store");
    let held = claim(&first).await.expect("a claim");
    let second = MongoStore::builder(&world.db.url).lock_timeout(Duration::from_secs(2));
    let second = second.connect().await.expect("a store");
    // It looks for transactions of the dead meanwhile.
    let error = claim(&second).await.expect_err("the receipt is held");
    first.commit(held.txn, None).await.unwrap_or_else(|e| panic!("{e}, after {error}"));
    assert_eq!(claim(&second).await.expect("a claim").fresh, [false]);
}

async fn claim(store: &MongoStore) -> StoreResult<Claimed<<MongoStore as Store>::Txn>> {
    let (consumer, key) = receipt();
    store.claim(&consumer, &[Claim { key, tenant: "", message_id: "a", set: &[], fingerprint: None }]).await
}

fn receipt() -> (ConsumerName, ReceiptKey) {
    let consumer = ConsumerName::new("stock").expect("a name");
    let key = ReceiptKey::of(&consumer, &Tenant::none(), &MessageId::new("a").expect("an id"));
    (consumer, key)
}
