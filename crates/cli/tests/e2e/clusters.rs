//! Several clusters in one file, topics by pattern, and members of a group with a name of their own.

use std::collections::BTreeSet;

use crate::support::broker::Broker;
use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::orders;
use crate::support::topic::Topic;
use crate::support::world::World;

/// Two clusters have a topic of the same name, with different messages. Each inbox reads its own, events go to the one that is
/// named, and the commands ask the right one.
#[tokio::test(flavor = "multi_thread")]
async fn each_inbox_reads_its_own_cluster() {
    let other = Broker::start("{\"keys\":[]}").await;
    let mut world = World::new(Kind::Postgres, 1).await;
    let name = world.topic.name.clone();
    let twin = Topic::create_at(&other.open(), &name, 1).await;
    let events = Topic::create_at(&other.open(), &format!("{name}.events"), 1).await;
    let second = format!("{}-east", world.consumer);
    world.inbox(|inbox| inbox.set("retention", "\"90d\""));
    world.config.inboxes.push(
        Inbox::of_orders_with_events(Kind::Postgres, &second, &name, &events.name)
            .set("kafka", "\"east\"")
            .set("retention", "\"90d\"")
            // The same group name: it is another group in another cluster.
            .set("group", &format!("{:?}", world.consumer))
            .set("properties", "{ \"client.id\" = \"reads-east\" }"),
    );
    world.config.outbox.insert("relay".to_owned(), "true".to_owned());
    world.config.outbox.insert("kafka".to_owned(), "\"east\"".to_owned());
    world.config.more = format!(
        "[kafka.east]\nbrokers = {:?}\n[kafka.east.properties]\n\"session.timeout.ms\" = 6000\n",
        other.open()
    );
    world.topic.send(&orders(0..30));
    twin.send(&orders(100..110));

    let found = world.oncebox(&["check", "--output", "json"]).json();
    let found = found.as_array().cloned().unwrap_or_default();
    for subject in ["kafka".to_owned(), "kafka east".to_owned(), format!("kafka east as {second}")] {
        let one = found.iter().find(|f| f["subject"] == subject.as_str());
        assert!(one.is_some_and(|f| f["level"] == "ok"), "{subject}: {found:#?}");
    }

    let daemon = world.start();
    world.caught_up().await;
    eventually("the other inbox is at its end", async || world.positions_of(&second).await == [(0, 10)])
        .await;
    eventually("the events are published", async || events.end(0) == 10).await;
    daemon.stop();
    world.topic.send(&orders(30..35));
    twin.send(&orders(110..117));

    let listed = world.oncebox(&["position", "list", "--output", "json"]).exits(0).json();
    let of = |consumer: &str| {
        let rows = listed.as_array().into_iter().flatten();
        rows.clone()
            .find(|p| p["consumer"] == consumer)
            .cloned()
            .unwrap_or_else(|| panic!("{consumer}: {listed:#}"))
    };
    for (consumer, end, lag) in [(world.consumer.as_str(), 35, 5), (second.as_str(), 17, 7)] {
        let position = of(consumer);
        assert_eq!((&position["log_end"], &position["lag"]), (&end.into(), &lag.into()), "{position:#}");
        assert_eq!(position["log"], position["log_now"], "{position:#}");
    }
    assert_ne!(of(&world.consumer)["log"], of(&second)["log"]);
    let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
    assert!(status["kafka_error"].is_null(), "{status:#}");
    let moved =
        ["position", "move", "--consumer", &second, "--topic", &name, "--to", "latest", "--accept-loss"];
    let said = world.oncebox(&[&moved[..], &["--output", "json"]].concat()).exits(0).json();
    assert_eq!(said["partitions"][0]["to"], 17, "the end of its own log: {said:#}");

    // An inbox that is pointed at the other cluster does not go on there as if it were the same log.
    world.inbox(|inbox| inbox.set("kafka", "\"east\"").set("group", "\"moved\""));
    let daemon = world.start();
    let stopped = format!("{:?}", world.turns(&daemon, 503).await);
    assert!(stopped.contains("another log") && stopped.contains("oncebox position move"), "{stopped}");
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_of_a_pattern_are_read_also_those_that_come_later() {
    let mut world = World::new(Kind::Postgres, 1).await;
    let name = world.topic.name.clone();
    let pattern = format!("^{name}([.].*)?$");
    world.inbox(|inbox| inbox.set("topics", &format!("[{pattern:?}]")).set("retention", "\"90d\""));
    world.config.properties.insert("topic.metadata.refresh.interval.ms".to_owned(), "1000".to_owned());
    world.topic.send(&orders(0..10));
    let daemon = world.start();
    world.caught_up().await;

    let late = Topic::create(&format!("{name}.late"), 2).await;
    let unlike = Topic::create(&format!("x{name}"), 1).await;
    late.send(&orders(10..30));
    unlike.send(&orders(900..910));
    world.effects_reach(30).await;
    world.turns(&daemon, 200).await;

    let answer = world.oncebox(&["check", "--output", "json"]);
    let subjects: Vec<String> =
        answer.json().as_array().into_iter().flatten().map(|f| f["subject"].to_string()).collect();
    for topic in [format!("topics {pattern} of"), format!("topic {name} of"), format!("topic {name}.late of")]
    {
        let said = subjects.iter().any(|subject| subject.replace("\\\\", "\\").contains(&topic));
        assert!(said, "nothing about {topic}: {answer}");
    }
    assert!(!subjects.iter().any(|subject| subject.contains(&unlike.name)), "{answer}");
    let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
    assert_eq!(status["consumers"][0]["lag"], 0, "{status:#}");

    // A topic of the pattern without a position yet can be moved in; another one is a typing error.
    let newest = Topic::create(&format!("{name}.newest"), 1).await;
    daemon.stop();
    newest.send(&orders(30..40));
    let to_end = |topic: &str| {
        world.oncebox(&[
            "position",
            "move",
            "--consumer",
            &world.consumer,
            "--topic",
            topic,
            "--to",
            "latest",
            "--accept-loss",
        ])
    };
    to_end(&newest.name).exits(0);
    to_end(&unlike.name).exits(1).says(&["does not read a topic"]);
    world.has_exactly(&orders(0..30)).await;
    for topic in [late, unlike, newest] {
        topic.delete().await;
    }
}

/// A restart within the session of its name moves no partition, of nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_a_name_comes_back_without_a_rebalance() {
    let mut world = World::new(Kind::Postgres, 4).await;
    world.config.properties.insert("session.timeout.ms".to_owned(), "120000".to_owned());
    let start = async |world: &mut World, name: &str| {
        world.config.properties.insert("group.instance.id".to_owned(), name.to_owned());
        let daemon = world.start();
        // It has read its configuration: the next one has another.
        daemon.ready().await;
        daemon
    };
    let topic = world.topic.name.clone();
    let one = start(&mut world, "one").await;
    let two = start(&mut world, "two").await;
    eventually("each has its half", async || {
        one.partitions(&topic).await.len() == 2 && two.partitions(&topic).await.len() == 2
    })
    .await;
    world.topic.send(&orders(0..40));
    world.caught_up().await;
    let set = |partitions: Vec<i32>| partitions.into_iter().collect::<BTreeSet<_>>();
    let (before, kept) = (set(one.partitions(&topic).await), set(two.partitions(&topic).await));
    let changes = |log: &str| log.matches("assigned").count() + log.matches("revoked").count();
    let quiet = changes(&two.log());

    one.stop();
    world.topic.send(&orders(40..80));
    // Longer than a group needs to share out what somebody has left who had no name.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let one = start(&mut world, "one").await;
    world.caught_up().await;
    assert_eq!(set(one.partitions(&topic).await), before, "it has what it had");
    assert_eq!(set(two.partitions(&topic).await), kept);
    assert_eq!(changes(&two.log()), quiet, "the other one has not noticed");

    // A second process of the same name takes over, and the first one says why it stands still.
    let newer = start(&mut world, "one").await;
    // Its partitions may notice first that somebody else has them.
    eventually("the first one says why it stands still", async || {
        let said = "same group.instance.id: give each process its own";
        one.health().await.is_some_and(|(status, health)| status == 503 && health.to_string().contains(said))
    })
    .await;
    world.topic.send(&orders(80..120));
    world.caught_up().await;
    assert_eq!(set(newer.partitions(&topic).await), before);
    world.turns(&newer, 200).await;
    for daemon in [one, two, newer] {
        daemon.stop();
    }
    world.has_exactly(&orders(0..120)).await;
}
