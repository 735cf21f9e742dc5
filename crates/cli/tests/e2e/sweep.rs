//! `[[sweep]]`: rows that become events by the clock.

use std::collections::BTreeMap;

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::records::Record;
use crate::support::world::World;

/// A world with invoices that are due, and a sweep that waits for the gate of the database.
async fn world_with_invoices(window: &str) -> World {
    let mut world = World::with_relay(2).await;
    world.db.execute("CREATE TABLE invoice (id BIGINT PRIMARY KEY, customer TEXT, due BOOLEAN)").await;
    world.config.more = format!(
        "[[sweep]]\nname = \"due-invoices\"\nevery = \"1s\"\nkey = \"id\"\nwindow = \"{window}\"\n\
         sql = \"SELECT id, customer FROM invoice WHERE due AND (SELECT pg_advisory_xact_lock_shared(1)) IS NOT NULL\"\n\
         emit = {{ topic = \"{}\", key = \"customer\" }}\n",
        world.topic.name
    );
    world
}

/// The events of each invoice.
fn by_invoice(world: &World) -> BTreeMap<i64, Vec<Record>> {
    let mut found: BTreeMap<i64, Vec<Record>> = BTreeMap::new();
    for record in world.topic.read() {
        let payload: serde_json::Value =
            serde_json::from_str(record.payload.as_deref().unwrap_or_default()).expect("JSON");
        assert_eq!(record.key.as_deref(), payload["customer"].as_str());
        found.entry(payload["id"].as_i64().expect("a number")).or_default().push(record);
    }
    found
}

/// Two daemons find the same rows at the same moment, and each row becomes one event.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_becomes_one_event_although_two_daemons_sweep() {
    let world = world_with_invoices("1h").await;
    let daemons = [world.start(), world.start()];
    for round in 0..5 {
        let gate = world.db.close_gate().await;
        let insert = format!(
            "INSERT INTO invoice SELECT n, 'customer-' || n % 7, n % 10 <> 9 \
             FROM generate_series({}, {}) AS n",
            round * 50,
            round * 50 + 49
        );
        world.db.execute(&insert).await;
        eventually("both daemons are about to read", async || world.db.waiting_handlers().await == 2).await;
        gate.open().await;
        world.topic_reaches((round + 1) * 45).await;
    }
    // Another run of each, to see that there is nothing more to find.
    let gate = world.db.close_gate().await;
    eventually("both daemons are about to read", async || world.db.waiting_handlers().await == 2).await;
    gate.open().await;
    world.outbox_empties().await;
    for daemon in daemons {
        daemon.stop();
    }
    let found = by_invoice(&world);
    assert_eq!(found.len(), 225, "all that are due");
    assert!(found.keys().all(|id| id % 10 != 9), "and no other");
    let twice: Vec<&Vec<Record>> = found.values().filter(|records| records.len() > 1).collect();
    assert!(twice.is_empty(), "{} more than once, such as {:#?}", twice.len(), twice[0]);
}

/// After its window a row that is still there becomes an event again, with an id of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_becomes_an_event_again_after_its_window() {
    let world = world_with_invoices("2s").await;
    world.db.execute("INSERT INTO invoice VALUES (1, 'a', true), (2, 'b', true)").await;
    let daemon = world.start();
    world.topic_reaches(2).await;
    world.db.execute("UPDATE invoice SET due = false WHERE id = 2").await;
    eventually("the other one comes again", async || {
        by_invoice(&world).get(&1).is_some_and(|records| records.len() >= 3)
    })
    .await;
    daemon.stop();
    let found = by_invoice(&world);
    let of = |id: i64| found.get(&id).map(Vec::as_slice).unwrap_or_default();
    let ids: std::collections::BTreeSet<&str> = of(1).iter().map(Record::id).collect();
    assert_eq!(ids.len(), of(1).len(), "each has its own id");
    let times: Vec<i64> = of(1).iter().filter_map(|record| record.timestamp).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1900), "not within the window: {times:?}");
    assert_eq!(of(2).len(), 1, "it is not due any more");
}

/// A query that fails is tried again, says so, and harms nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_fails_goes_on_when_it_can() {
    let world = world_with_invoices("1h").await;
    let mut writer = world.writer("w", 3).await;
    let daemon = world.start();
    daemon.ready().await;
    world.db.execute("ALTER TABLE invoice RENAME TO bill").await;
    eventually("/healthz shows it", async || {
        daemon.get("/healthz").await.is_some_and(|page| {
            page.body.contains("sweep:due-invoices") && page.body.contains("\\\"invoice\\\" does not exist")
        })
    })
    .await;
    writer.write(30).await;
    world.topic_reaches(30).await;
    world.db.execute("ALTER TABLE bill RENAME TO invoice").await;
    world.db.execute("INSERT INTO invoice VALUES (1, 'a', true)").await;
    world.topic_reaches(31).await;
    daemon.stop();
}

/// The same as a pipeline over documents, by two daemons at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_becomes_one_event_although_two_daemons_sweep() {
    let mut world = World::with_relay_on(Kind::Mongodb, 2).await;
    world.config.more = format!(
        "[[sweep]]\nname = \"due-invoices\"\nevery = \"1s\"\nkey = \"_id\"\nwindow = \"1h\"\naggregate = \"invoice\"\n\
         pipeline = [ {{ \"$match\" = {{ due = true }} }}, {{ \"$set\" = {{ id = \"$_id\" }} }} ]\n\
         emit = {{ topic = \"{}\", key = \"customer\" }}\n",
        world.topic.name
    );
    world.db.script(r#"[{"create": "invoice"}]"#).await;
    let insert = async |invoices: &[String]| {
        let command = format!(r#"[{{"insert": "invoice", "documents": [{}]}}]"#, invoices.join(", "));
        world.db.script(&command).await;
    };
    let invoice = |n: i64| {
        let (customer, due) = (format!("customer-{}", n % 7), n % 10 != 9);
        format!(r#"{{"_id": {n}, "customer": "{customer}", "due": {due}}}"#)
    };
    let daemons = [world.start(), world.start()];
    for round in 0..3 {
        let invoices: Vec<String> = (round * 50..round * 50 + 50).map(invoice).collect();
        insert(&invoices).await;
        world.topic_reaches((round + 1) * 45).await;
    }
    // It is found by a run that would also find what is left of the others.
    insert(&[invoice(1000)]).await;
    world.topic_reaches(136).await;
    world.outbox_empties().await;
    for daemon in daemons {
        daemon.stop();
    }
    let found = by_invoice(&world);
    assert_eq!(found.len(), 136, "all that are due");
    assert!(found.keys().all(|id| id % 10 != 9), "and no other");
    assert!(found.values().all(|records| records.len() == 1), "each once");
}
