//! A group that does not let the daemon in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::orders;
use crate::support::topic::config;
use crate::support::world::World;

/// Another member of the group, which has no assignment strategy in common with the daemon.
struct Stranger {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Stranger {
    /// One that has joined.
    async fn join(world: &World) -> Self {
        let consumer: BaseConsumer = config(&world.topic.brokers)
            .set("group.id", &world.consumer)
            .set("partition.assignment.strategy", "range")
            .set("enable.auto.commit", "false")
            .create()
            .expect("a consumer");
        consumer.subscribe(&[&world.topic.name]).expect("a topic");
        let (stop, joined) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stopped, has_joined) = (Arc::clone(&stop), Arc::clone(&joined));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                consumer.poll(Duration::from_millis(50));
                let assigned = consumer.assignment().expect("an assignment").count();
                has_joined.store(assigned > 0, Ordering::Relaxed);
            }
        });
        eventually("the stranger has joined", async || joined.load(Ordering::Relaxed)).await;
        Self { stop, thread: Some(thread) }
    }

    fn leave(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("it ends");
    }
}

/// `/healthz` is red with the reason as long as it lasts, whatever the statistics say meanwhile, and green when it is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_cannot_be_joined_is_red_until_it_can() {
    let mut world = World::new(Kind::Sqlite, 2).await;
    world.config.properties.insert("statistics.interval.ms".to_owned(), "500".to_owned());
    let all = orders(0..100);
    world.topic.send(&all);
    let stranger = Stranger::join(&world).await;

    let daemon = world.start();
    let unhealthy = world.turns(&daemon, 503).await;
    let name = format!("kafka:{}", world.consumer);
    let problem = unhealthy.iter().find(|l| l["name"] == name.as_str()).and_then(|l| l["error"].as_str());
    let problem = problem.unwrap_or_else(|| panic!("Kafka is to blame: {unhealthy:?}"));
    for word in ["cannot be joined", "InconsistentGroupProtocol", "partition.assignment.strategy"] {
        assert!(problem.contains(word), "{problem}");
    }
    // Nothing has made it look well in between.
    let age = format!("oncebox_loop_last_success_age_seconds{{loop=\"{name}\"}}");
    eventually("it has been red for a while", async || daemon.metric(&age).await > Some(40.0)).await;
    assert_eq!(daemon.health().await.expect("an answer").0, 503);
    assert_eq!(world.effects().await, 0);

    stranger.leave();
    world.turns(&daemon, 200).await;
    world.caught_up().await;
    world.has_exactly(&all).await;
    let log = daemon.stop();
    for once in ["trouble with the group;", "no more trouble with the group"] {
        assert_eq!(log.matches(once).count(), 1, "{once}");
    }
}
