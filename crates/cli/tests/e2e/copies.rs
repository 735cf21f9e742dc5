//! One event to several sinks: Kafka, and endpoints that get copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::database::Kind;
use crate::support::endpoint::{Endpoint, Reply};
use crate::support::world::World;
use crate::support::{eventually, on_each_server};

on_each_server!(mysql: an_endpoint_that_is_away_holds_back_its_own_copies_alone);

fn copy(world: &World, name: &str, endpoint: &Endpoint) -> String {
    format!(
        "[[webhook]]\nname = \"{name}\"\ncopy = true\ntopics = [\"{}\"]\nurl = \"{}\"\nsecret = \"s\"\n\
         retry = {{ backoff = \"100ms..500ms\" }}\n",
        world.topic.name,
        endpoint.url()
    )
}

/// Kafka and both endpoints get each event, in order for each key, with the same id; one that is away holds back nobody else.
async fn an_endpoint_that_is_away_holds_back_its_own_copies_alone(kind: Kind) {
    let away = Arc::new(AtomicBool::new(true));
    let is_away = Arc::clone(&away);
    let crm = Endpoint::start(move |_, _| match is_away.load(Ordering::SeqCst) {
        true => Reply::Status(503),
        false => Reply::Status(200),
    })
    .await;
    let audit = Endpoint::start(|_, _| Reply::Status(200)).await;
    let mut world = World::with_relay_on(kind, 2).await;
    world.config.more = [copy(&world, "crm", &crm), copy(&world, "audit", &audit)].concat();
    let checked = world.oncebox(&["check"]).stdout;
    let crm_line = format!("webhook crm ({}): copies go to http://127.0.0.1:", world.topic.name);
    assert!(checked.contains(&crm_line), "{checked}");
    assert!(checked.contains("the relay is on; events go to Kafka"), "{checked}");

    let mut writer = world.writer("k", 10).await;
    let daemon = world.start();
    for _ in 0..6 {
        writer.write(10).await;
    }
    let written = writer.written.clone();
    eventually("only the copies for crm are left", async || {
        let listed = world.oncebox(&["outbox", "list", "--output", "json"]).json();
        let topics: Vec<&str> = listed
            .as_array()
            .map(|all| all.iter().filter_map(|e| e["topic"].as_str()).collect())
            .unwrap_or_default();
        topics.len() == written.len() && topics.iter().all(|topic| topic.starts_with("oncebox.to.crm."))
    })
    .await;
    world.has_published(&written);
    audit.has_received(&written);
    assert!(!crm.requests().is_empty(), "it is asked, and says no");

    away.store(false, Ordering::SeqCst);
    world.outbox_empties().await;
    crm.has_received(&written);
    assert_eq!(world.has_published(&written), 0, "Kafka gets nothing twice");
    let topic = crm.requests()[0].header("oncebox-topic").to_owned();
    assert_eq!(topic, world.topic.name, "what is received says nothing of copies");
    daemon.stop();
}
