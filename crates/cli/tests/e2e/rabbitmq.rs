//! The daemon on a queue of RabbitMQ: copies, kills, poison.

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::{Order, orders};
use crate::support::queue::Queue;
use crate::support::world::{Causes, World};

/// A world whose inbox reads a new queue.
async fn world(kind: Kind, queue: &str) -> (World, Queue) {
    let mut world = World::new(kind, 1).await;
    let queue = Queue::declare(&world.consumer, queue).await;
    world.config.more = format!("[rabbitmq]\nurl = {:?}\n", queue.url);
    let name = queue.name.clone();
    world.inbox(|inbox| {
        inbox.reading_queue(&name).set("id", "\"property:message_id\"").set("key", "\"header:sku\"")
    });
    (world, queue)
}

/// Waits until nothing is left, neither in the queue nor with a consumer.
async fn drained(world: &World, queue: &Queue, orders: i64) {
    world.effects_reach(orders).await;
    eventually("the queue is empty", async || queue.waiting().await == 0).await;
}

const UNIQUE: u32 = 83_334;
const KILLS: i64 = 4;

/// 100,000 messages of which a sixth are copies (20 % of the different ones), two processes on one queue, four of them killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_messages_two_processes_and_four_kills() {
    let (mut world, queue) = world(Kind::Postgres, "quorum").await;
    world.inbox(|inbox| inbox.set("batch", "{ messages = 500 }"));
    let all: Vec<Order> = orders(0..UNIQUE);
    let mut sent = Vec::with_capacity(100_001);
    for (nth, order) in all.iter().enumerate() {
        sent.push(order.clone());
        match nth % 10 {
            3 => sent.push(order.clone()),
            7 if nth > 5_000 => sent.push(all[nth - 5_000].clone()),
            _ => {}
        }
    }
    queue.send(&sent).await;
    let mut daemons = [world.start(), world.start()];
    for kill in 1..=KILLS {
        world.effects_reach(kill * i64::from(UNIQUE) / (KILLS + 1)).await;
        let slot = usize::try_from(kill).expect("few") % 2;
        let killed = std::mem::replace(&mut daemons[slot], world.start());
        killed.kill();
        world.snapshot_is_whole().await;
    }
    drained(&world, &queue, i64::from(UNIQUE)).await;
    for daemon in daemons {
        daemon.stop();
    }
    world.has_exactly_in_any_order(&all).await;
    assert_eq!(queue.waiting().await, 0, "everything is acknowledged");
    queue.delete().await;
}

/// Killed after the commit and before the acknowledgement: it comes again and is skipped.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_and_not_acknowledged_is_skipped() {
    let (world, queue) = world(Kind::Postgres, "classic").await;
    let all = orders(0..20);
    queue.send(&all).await;
    world.start_to_crash("after-commit").crashed();
    let daemon = world.start();
    // They were applied before: only the copies say that they have come again.
    let copies = format!("oncebox_messages_total{{consumer=\"{}\",outcome=\"duplicate\"}}", world.consumer);
    eventually("the copies come", async || daemon.metric(&copies).await > Some(0.0)).await;
    drained(&world, &queue, 20).await;
    let came_again =
        format!("oncebox_redelivered_total{{consumer=\"{}\",outcome=\"duplicate\"}}", world.consumer);
    eventually("the metrics say why there were copies", async || {
        daemon.metric(&came_again).await.is_some_and(|messages| messages > 0.0)
    })
    .await;
    let why = format!("oncebox_duplicates_total{{consumer=\"{}\",cause=\"redelivered\"}}", world.consumer);
    assert_eq!(daemon.metric(&why).await, daemon.metric(&copies).await);
    let log = daemon.stop();
    world.has_exactly(&all).await;
    assert!(log.contains("stopped"), "{log}");
    let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
    let skipped = status["consumers"][0]["duplicates_suppressed"].as_i64().expect("a number");
    assert!(skipped > 0, "what was committed before the crash came again: {status}");
    assert_eq!(world.causes(), Causes { redelivered: skipped, ..Causes::default() });
    queue.delete().await;
}

/// A message that ends the process each time it is applied is given up well before the broker would drop it, and with it the
/// innocent ones that were out with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_ends_the_process_is_parked_and_the_broker_drops_nothing() {
    let (world, queue) = world(Kind::Postgres, "quorum").await;
    let all = orders(0..30);
    queue.send(&all).await;
    // Whatever is applied first ends the process: as long as it is not given up, that is the first message.
    let mut starts = 0;
    while starts == 0 || world.dead("message_id").await.is_empty() {
        starts += 1;
        assert!(starts <= 8, "the message is not given up after {starts} starts");
        world.start_to_crash("before-handler:1").crashed();
    }
    let daemon = world.start();
    drained(&world, &queue, 29).await;
    daemon.stop();
    assert_eq!(world.dead("message_id").await, [all[0].id.as_str()], "only the guilty one");
    world.has_exactly(&all[1..]).await;
    queue.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_and_run_say_what_is_wrong_with_a_queue() {
    let (mut world, queue) = world(Kind::Postgres, "classic").await;
    world.oncebox(&["migrate"]).exits(0);
    let fine = world.oncebox(&["check", "--output", "json"]).json().to_string();
    assert!(fine.contains(&format!("queue {}", queue.name)), "{fine}");
    world.inbox(|inbox| inbox.reading_queue("no-such-queue"));
    let missing = world.oncebox(&["check", "--output", "json"]).exits(1).json().to_string();
    assert!(missing.contains("no-such-queue"), "{missing}");
    world.inbox(|inbox| inbox.set("id", "\"property:messageid\""));
    world.oncebox(&["run"]).exits(3).says(&["messageid", "message_id"]);
    queue.delete().await;
}
