//! Messages that are gone from the topic before they were applied.

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::Order;
use crate::support::world::World;

/// Nobody jumps over the gap: the partition stands still and says so, the others go on, an operator decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_truncated_past_the_position() {
    let world = World::new(Kind::Postgres, 2).await;
    let of = |seqs: std::ops::Range<i64>| -> Vec<Order> {
        seqs.flat_map(|seq| [Order::of(0, seq), Order::of(1, seq)]).collect()
    };
    world.topic.send(&of(0..20));
    let daemon = world.start();
    world.caught_up().await;
    daemon.stop();
    world.topic.send(&of(20..40));
    world.topic.delete_before(0, 25).await;

    let mut daemon = world.start();
    eventually("the partition stands still", async || {
        daemon.health().await.is_some_and(|(status, _)| status == 503)
    })
    .await;
    // Only the other partition moves.
    world.effects_reach(60).await;
    world.topic.send(&of(40..41));
    world.effects_reach(61).await;
    let (_, health) = daemon.health().await.expect("an answer");
    let stopped: Vec<_> =
        health["loops"].as_array().into_iter().flatten().filter(|l| l["healthy"] == false).collect();
    assert_eq!(stopped.len(), 1, "{health:#}");
    assert_eq!(stopped[0]["detail"], format!("{}/0", world.topic.name));
    let reason = stopped[0]["error"].as_str().unwrap_or_default();
    assert!(reason.contains("20..25") && reason.contains("oncebox position move"), "{reason}");
    assert!(daemon.log().contains("20..25"), "the log says it too");
    let series = format!("oncebox_partitions_stopped{{consumer=\"{}\"}}", world.consumer);
    eventually("the metric says so", async || daemon.metric(&series).await == Some(1.0)).await;
    assert_eq!(world.positions_of(&world.consumer).await[0], (0, 20), "nothing is passed");
    assert!(daemon.is_running());

    // The operator accepts the loss, as the message says, and the daemon goes on by itself.
    let go_on = ["position", "move", "--consumer", &world.consumer, "--topic", &world.topic.name];
    let go_on = [&go_on[..], &["--partition", "0", "--to", "25"]].concat();
    world.oncebox(&go_on).exits(5).says(&["5 were removed", "--accept-loss"]);
    world.oncebox(&[&go_on[..], &["--accept-loss"]].concat()).exits(0);
    world.caught_up().await;
    let lost = (20..25).map(|seq| Order::of(0, seq).id).collect::<Vec<_>>();
    let kept: Vec<Order> = of(0..41).into_iter().filter(|order| !lost.contains(&order.id)).collect();
    world.has_exactly(&kept).await;
    eventually("all is well", async || daemon.health().await.is_some_and(|(status, _)| status == 200)).await;
    eventually("the metric says so", async || daemon.metric(&series).await == Some(0.0)).await;
    daemon.stop();
}

/// What was truncated was applied before: no gap, whatever the group thinks.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_truncated_up_to_the_position() {
    let world = World::new(Kind::Postgres, 1).await;
    let of = |seqs: std::ops::Range<i64>| -> Vec<Order> { seqs.map(|seq| Order::of(0, seq)).collect() };
    world.topic.send(&of(0..20));
    let daemon = world.start();
    world.caught_up().await;
    daemon.stop();
    world.topic.delete_before(0, 20).await;
    world.topic.commit(&world.consumer, 5);
    world.topic.send(&of(20..30));
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&of(0..30)).await;
    assert_eq!(daemon.health().await.map(|(status, _)| status), Some(200));
    daemon.stop();
}
