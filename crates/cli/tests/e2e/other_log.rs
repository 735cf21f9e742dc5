//! The log is not the one that the position is about: somebody has to decide.

use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::{Order, orders};
use crate::support::world::World;

/// Whatever stands still says why, with the command that helps.
#[track_caller]
fn says(unhealthy: &[serde_json::Value], words: &[&str]) {
    let errors: Vec<&str> = unhealthy.iter().filter_map(|l| l["error"].as_str()).collect();
    for word in words {
        assert!(errors.iter().any(|error| error.contains(word)), "{word:?} is not in {errors:?}");
    }
}

/// The new log is longer than the position: no number tells that it is another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_created_anew_stops_the_partition_whatever_its_length() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        world.topic.send(&orders(0..50));
        let daemon = world.start();
        world.caught_up().await;
        daemon.stop();
        world.topic.recreate().await;
        world.topic.send(&orders(50..250));

        let daemon = world.start();
        let stopped = world.turns(&daemon, 503).await;
        says(&stopped, &["another log", "oncebox position move", "--to earliest", "--accept-loss"]);
        assert_eq!(world.effects().await, 50, "nothing of the new log is applied on a guess");
        assert_eq!(world.positions_of(&world.consumer).await, [(0, 50)]);
        let listed = world.oncebox(&["position", "list"]).exits(0).stdout;
        assert!(listed.contains("but"), "the list shows both logs:\n{listed}");

        world.move_to("latest", &[]).exits(5).says(&["200 messages"]);
        world.move_to("100", &[]).exits(5).says(&["100 messages"]);
        world.move_to("earliest", &[]).exits(0);
        world.caught_up().await;
        world.has_exactly(&orders(0..250)).await;
        world.turns(&daemon, 200).await;
        daemon.stop();
    }
}

/// Where a message stands is its id: in another log it is another message.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_new_log_are_new_when_their_place_is_their_id() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("id", "\"coordinates\""));
        world.topic.send(&orders(0..20));
        let daemon = world.start();
        world.caught_up().await;
        daemon.stop();
        world.topic.recreate().await;
        world.topic.send(&orders(20..60));
        let daemon = world.start();
        world.turns(&daemon, 503).await;
        world.move_to("earliest", &[]).exits(0);
        world.caught_up().await;
        assert_eq!(world.effects().await, 60);
        assert_eq!(world.duplicates().await, 0);
        daemon.stop();
    }
}

/// The group knows an offset, the database nothing: a team that moves to oncebox, or a database that was lost. Nobody guesses.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_knows_less_than_the_group_is_a_question() {
    for goes_on in [true, false] {
        let mut world = World::new(Kind::Postgres, 1).await;
        world.topic.send(&orders(0..30));
        world.topic.commit(&world.consumer, 20);
        let daemon = world.start();
        let stopped = world.turns(&daemon, 503).await;
        says(&stopped, &["committed offset 20", "start = \"group\"", "--to earliest"]);
        assert_eq!(world.effects().await, 0);
        if goes_on {
            daemon.stop();
            world.inbox(|inbox| inbox.set("start", "\"group\""));
            let daemon = world.start();
            world.caught_up().await;
            world.has_exactly(&orders(20..30)).await;
            daemon.stop();
        } else {
            world.move_to("earliest", &[]).exits(0);
            world.caught_up().await;
            world.has_exactly(&orders(0..30)).await;
            daemon.stop();
        }
    }
}

/// An offset that somebody has committed ahead of the position is not followed, and that is said.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_was_set_forward_is_not_followed_silently() {
    let world = World::new(Kind::Postgres, 1).await;
    world.topic.send(&orders(0..20));
    let daemon = world.start();
    world.caught_up().await;
    daemon.stop();
    world.topic.send(&orders(20..40));
    world.topic.commit(&world.consumer, 35);
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&orders(0..40)).await;
    assert!(daemon.log().contains("oncebox position move"), "the log says how:\n{}", daemon.log());
    daemon.stop();
}

/// Two partitions, one log each of its topics: only what is another log stands still.
#[tokio::test(flavor = "multi_thread")]
async fn other_topics_go_on_while_one_was_created_anew() {
    let mut world = World::new(Kind::Postgres, 1).await;
    let other = crate::support::topic::Topic::create(&format!("{}_b", world.topic.name), 1).await;
    let name = format!("{}-b", world.consumer);
    world.config.inboxes.push(Inbox::of_orders(Kind::Postgres, &name, &other.name));
    world.topic.send(&orders(0..10));
    let daemon = world.start();
    world.caught_up().await;
    daemon.stop();
    world.topic.recreate().await;
    world.topic.send(&orders(10..30));
    let daemon = world.start();
    world.turns(&daemon, 503).await;
    let of_other: Vec<Order> = (0..5).map(|seq| Order::of(3, 1_000 + seq)).collect();
    other.send(&of_other);
    eventually("the other topic flows", async || world.effects_of(&name).await.len() == 5).await;
    assert_eq!(world.effects_of(&world.consumer).await.len(), 10);
    daemon.stop();
    other.delete().await;
}
