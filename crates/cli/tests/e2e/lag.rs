//! How far behind: by partition, in messages and in seconds; who reads what, and what the log says of it.

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::orders;
use crate::support::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_known_by_partition_in_messages_and_seconds() {
    let mut world = World::new(Kind::Postgres, 2).await;
    world.inbox(|inbox| inbox.gated(Kind::Postgres));
    world.config.more = "[log]\nsummary = \"1s\"\n".to_owned();
    let all = orders(0..40);
    world.topic.send(&all);
    let ends = world.topic.ends();
    let gate = world.db.close_gate().await;
    let daemon = world.start();
    daemon.has_logged(" ready").await;
    let (consumer, topic) = (&world.consumer, &world.topic.name);
    let line = format!("{consumer} ← {topic}, group {consumer}, 2 partitions, ");
    assert!(daemon.log().contains(&line), "{line:?} is not in\n{}", daemon.log());

    let of = |partition: usize| {
        format!(
            "oncebox_partition_lag_messages{{consumer=\"{consumer}\",topic=\"{topic}\",partition=\"{partition}\"}}"
        )
    };
    let seconds = format!("oncebox_lag_seconds{{consumer=\"{consumer}\"}}");
    for (partition, end) in ends.iter().enumerate() {
        eventually(&format!("the lag of partition {partition} is {end}"), async || {
            daemon.metric(&of(partition)).await == Some(*end as f64)
        })
        .await;
    }
    eventually("the messages get older", async || daemon.metric(&seconds).await > Some(2.0)).await;
    daemon.has_logged("lag=40 lag_seconds=").await;

    let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
    assert_eq!(status["consumers"][0]["state"], "Stable", "{status:#}");
    for (position, end) in status["positions"].as_array().into_iter().flatten().zip(&ends) {
        assert_eq!(position["lag"], *end, "{status:#}");
        assert!(position["owner"].as_str().is_some_and(|owner| owner.starts_with("oncebox@")), "{status:#}");
    }

    gate.open().await;
    world.caught_up().await;
    for series in [of(0), of(1), seconds] {
        eventually(&format!("{series} is 0"), async || daemon.metric(&series).await == Some(0.0)).await;
    }
    daemon.stop();
    let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
    assert!(status["positions"][0]["owner"].is_null(), "nobody reads it: {status:#}");
}
