//! The database, or the way to it, goes away in the middle of the work.

use std::time::Duration;

use crate::support::config::Inbox;
use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::on_each_server;
use crate::support::orders::{Order, orders};
use crate::support::proxy::Proxy;
use crate::support::world::{Causes, World};

on_each_server!(
    the_network_is_cut_again_and_again,
    the_answer_to_a_commit_is_lost,
    a_daemon_that_starts_before_its_database,
);
on_each_server!(mysql: connections_terminated_again_and_again, the_database_is_away_for_a_while);
on_each_server!(sql: the_database_is_read_only_for_a_while, a_deadlock_is_nobodys_fault);

/// An operator, a failover or a pooler ends the daemon's connections again and again.
async fn connections_terminated_again_and_again(kind: Kind) {
    let mut world = World::new(kind, 3).await;
    world.inbox(|inbox| inbox.set("batch", "{ messages = 10 }"));
    let all = orders(0..1500);
    world.topic.send(&all[..500]);
    let mut daemon = world.start();
    let mut terminated = 0;
    for round in 1..=20 {
        world.effects_reach(round * 40).await;
        terminated += world.db.terminate_daemons().await;
        if round == 10 {
            world.topic.send(&all[500..]);
        }
    }
    world.caught_up().await;
    assert!(terminated >= 10, "{terminated} connections were ended");
    assert!(daemon.is_running());
    world.has_exactly(&all).await;
    assert_eq!(world.dead("error").await, [""; 0], "no message is to blame");
    daemon.stop();
}

/// The network cuts all connections, at any point of the conversation.
async fn the_network_is_cut_again_and_again(kind: Kind) {
    let mut world = World::new(kind, 3).await;
    let proxy = Proxy::before(&world.db.url).await;
    world.config.store = proxy.url(&world.db.url);
    world.inbox(|inbox| inbox.set("batch", "{ messages = 10 }"));
    let all = orders(0..1500);
    world.topic.send(&all);
    let mut daemon = world.start();
    for round in 1..=20 {
        world.effects_reach(round * 60).await;
        proxy.cut();
        // For a while nobody is there at all.
        if round % 5 == 0 {
            proxy.refuse(true);
            tokio::time::sleep(Duration::from_millis(300)).await;
            proxy.refuse(false);
        }
    }
    world.caught_up().await;
    assert!(daemon.is_running());
    world.has_exactly(&all).await;
    assert_eq!(world.dead("error").await, [""; 0], "no message is to blame");
    daemon.stop();
}

/// The database commits and the daemon never hears of it: was it applied, or not?
async fn the_answer_to_a_commit_is_lost(kind: Kind) {
    let mut world = World::new(kind, 2).await;
    let proxy = Proxy::before(&world.db.url).await;
    world.config.store = proxy.url(&world.db.url);
    world.inbox(|inbox| inbox.set("batch", "{ messages = 10 }"));
    let all = orders(0..600);
    world.topic.send(&all[..100]);
    let daemon = world.start();
    world.caught_up().await;
    proxy.lose_answers(4);
    world.topic.send(&all[100..]);
    world.caught_up().await;
    proxy.lose_answers(0);
    assert!(proxy.lost() >= 5, "{} answers were lost", proxy.lost());
    // The last batch may have committed without hearing of it: what it finds when it is tried again counts too.
    daemon.stop();
    // On MongoDB the commit is sent again, and answered.
    if kind != Kind::Mongodb {
        let copies = world.duplicates().await;
        assert!(copies > 0, "batches were tried again and found applied");
        assert_eq!(world.causes(), Causes { redelivered: copies, ..Causes::default() }, "{kind:?}");
    }
    world.has_exactly(&all).await;
    assert_eq!(world.dead("error").await, [""; 0], "no message is to blame");
}

/// The database is away: the daemon stays, says so, and goes on by itself when it is back.
async fn the_database_is_away_for_a_while(kind: Kind) {
    let world = World::new(kind, 2).await;
    let all = orders(0..300);
    world.topic.send(&all[..100]);
    let mut daemon = world.start();
    world.caught_up().await;
    eventually("all is well", async || daemon.health().await.is_some_and(|(status, _)| status == 200)).await;

    world.db.allow_connections(false).await;
    world.db.terminate_daemons().await;
    world.topic.send(&all[100..200]);
    shows_trouble(&world, &daemon, world.db.refusal()).await;
    daemon.has_logged("the database cannot be used").await;
    eventually("/healthz is red", async || daemon.health().await.is_some_and(|(status, _)| status == 503))
        .await;
    assert!(daemon.is_running());

    world.db.allow_connections(true).await;
    world.topic.send(&all[200..]);
    world.caught_up().await;
    world.has_exactly(&all).await;
    eventually("all is well", async || daemon.health().await.is_some_and(|(status, _)| status == 200)).await;
    // The end is told as the beginning is, once for all lanes.
    daemon.has_logged("the database is back after ").await;
    daemon.has_logged("goes on after ").await;
    let log = daemon.stop();
    let inbox = format!("name=\"inbox:{}\"", world.consumer);
    let ends = log.lines().filter(|line| line.contains("goes on after") && line.contains(&inbox)).count();
    assert!((1..=3).contains(&ends), "{ends} lines for one outage:\n{log}");
}

/// Waits until `/healthz` says this of the store and of the inbox.
async fn shows_trouble(world: &World, daemon: &Daemon, word: &str) {
    for name in ["store".to_owned(), format!("inbox:{}", world.consumer)] {
        eventually(&format!("/healthz shows the trouble of {name}"), async || {
            let Some((_, health)) = daemon.health().await else { return false };
            let loops = health["loops"].as_array().cloned().unwrap_or_default();
            // An alarm is what an operator has to mend: MySQL's number for a locked account says so.
            let tells = |text: &serde_json::Value| text.as_str().is_some_and(|text| text.contains(word));
            let trouble = |l: &serde_json::Value| {
                l["name"] == name.as_str() && (tells(&l["error"]) || tells(&l["alarm"]))
            };
            loops.iter().any(trouble)
        })
        .await;
    }
}

/// It is not there yet when the daemon starts: the daemon waits for it.
async fn a_daemon_that_starts_before_its_database(kind: Kind) {
    let world = World::new(kind, 1).await;
    let all = orders(0..50);
    world.topic.send(&all);
    world.db.allow_connections(false).await;
    let mut daemon = world.start();
    eventually("it says what it waits for", async || {
        let ready = daemon.get("/readyz").await;
        let health = daemon.get("/healthz").await;
        ready.is_some_and(|page| page.status == 503)
            && health.is_some_and(|page| page.body.contains(world.db.refusal()))
    })
    .await;
    assert!(daemon.is_running());
    world.db.allow_connections(true).await;
    daemon.ready().await;
    world.caught_up().await;
    world.has_exactly(&all).await;
    daemon.stop();
}

/// An operator, or a failover, has made the database read-only in the middle of a transaction: nobody's fault, and it passes.
async fn the_database_is_read_only_for_a_while(kind: Kind) {
    let mut world = World::alone(kind, 2).await;
    // An attempt that counted would be the last one, and whose it was would be known.
    let hasty = |inbox: Inbox| inbox.set("batch", "{ messages = 1 }").set("retry", "{ attempts = 1 }");
    world.inbox(|inbox| hasty(inbox.gated(kind)));
    let all = orders(0..200);
    world.topic.send(&all[..100]);
    let mut daemon = world.start();
    world.caught_up().await;
    let gate = world.db.close_gate().await;
    world.topic.send(&all[100..]);
    eventually("a handler waits", async || world.db.waiting_handlers().await > 0).await;
    world.db.set_read_only(true).await;
    gate.open().await;
    shows_trouble(&world, &daemon, "read-only").await;
    assert!(daemon.is_running());
    assert_eq!(world.effects().await, 100, "nothing is written meanwhile");
    world.db.set_read_only(false).await;
    world.caught_up().await;
    world.has_exactly(&all).await;
    assert_eq!(world.dead("error").await, [""; 0], "no message is to blame");
    daemon.stop();
}

/// Another transaction needs the same rows in another order: the daemon's is undone, tried again, and nothing is given up.
async fn a_deadlock_is_nobodys_fault(kind: Kind) {
    let mut world = World::new(kind, 1).await;
    // Let the daemon be the victim. On PostgreSQL that is whoever looks for deadlocks after the cycle has closed; elsewhere it is
    // whoever has written less.
    let (others, error) = if kind == Kind::Postgres {
        world.db.alter("SET deadlock_timeout = '4s'").await;
        ("SET LOCAL deadlock_timeout = '60s'".to_owned(), "deadlock detected")
    } else {
        let rows = ["('other', '', '', 0, 0)"; 500].join(", ");
        let insert = "INSERT INTO ledger (consumer, message_id, sku, qty, seq) VALUES";
        (format!("{insert} {rows}"), "Deadlock found")
    };
    let order = Order { qty: 2, ..Order::of(0, 0) };
    let take = |sku: &str| format!("\"UPDATE stock SET on_hand = on_hand - 1 WHERE sku = '{sku}'\"");
    let enter = format!(
        "\"INSERT INTO ledger (consumer, message_id, sku, qty, seq) VALUES ('{}', :id, 'sku-0', 2, 0)\"",
        world.consumer
    );
    let inbox = Inbox::new(&world.consumer, &world.topic.name, vec![take("sku-0"), take("sku-1"), enter]);
    // An attempt that counted would be the last one.
    world.config.inboxes = vec![inbox.set("retry", "{ attempts = 1 }")];

    let mut other = world.db.begin(&others).await;
    other.execute("UPDATE stock SET on_hand = on_hand WHERE sku = 'sku-1'").await;
    world.topic.send(std::slice::from_ref(&order));
    let daemon = world.start();
    let free = "SELECT sku FROM stock WHERE sku = 'sku-0' FOR UPDATE SKIP LOCKED";
    eventually("the daemon has the first row", async || world.db.texts(free).await.is_empty()).await;
    other.execute("UPDATE stock SET on_hand = on_hand WHERE sku = 'sku-0'").await;
    daemon.has_logged(error).await;
    other.rollback().await;
    world.caught_up().await;
    world.has_exactly(&[order]).await;
    assert_eq!(world.dead("error").await, [""; 0], "no message is to blame");
    daemon.stop();
}
