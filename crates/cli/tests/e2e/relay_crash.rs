//! A relay ends at each step of its work: no event is lost, and what was published twice can be told by its id.

use crate::support::database::Kind;
use crate::support::on_each_server;
use crate::support::outbox::Written;
use crate::support::world::World;

on_each_server!(
    a_relay_that_crashes_at_each_step,
    a_crash_publishes_again_only_what_was_not_written_down,
    relays_that_crash_one_after_another,
    relays_killed_under_load,
);

/// Each step, at the first time it is reached and in the middle of the work.
const STEPS: [&str; 12] = [
    "relay-after-read:1",
    "relay-after-read:6",
    "relay-after-produce:1",
    "relay-after-produce:6",
    "relay-before-report:1",
    "relay-before-report:6",
    "relay-after-report:1",
    "relay-after-report:6",
    "relay-before-delete:1",
    "relay-before-delete:6",
    "relay-after-delete:1",
    "relay-after-delete:6",
];

/// One process after another on the same outbox: each crashes at its step among fresh events, the next goes on.
async fn a_relay_that_crashes_at_each_step(kind: Kind) {
    let world = World::with_relay_on(kind, 3).await;
    let mut writer = world.writer("w", 12).await;
    for step in STEPS {
        for _ in 0..20 {
            writer.write(12).await;
        }
        world.start_to_crash(step).crashed();
        let daemon = world.start();
        world.outbox_empties().await;
        world.has_published(&writer.written);
        daemon.stop();
    }
}

/// A single event: what has happened to it at each step is certain.
async fn a_crash_publishes_again_only_what_was_not_written_down(kind: Kind) {
    // How many copies the topic has after the crash, and how many more the next relay may add.
    let steps = [
        ("relay-after-read", Some(0), 1),
        // librdkafka may have sent it, or not.
        ("relay-after-produce", None, 1),
        ("relay-before-report", Some(1), 1),
        ("relay-after-report", Some(1), 1),
        ("relay-before-delete", Some(1), 1),
        ("relay-after-delete", Some(1), 0),
    ];
    let world = World::with_relay_on(kind, 1).await;
    let mut writer = world.writer("w", 1).await;
    for (step, at_crash, again) in steps {
        let before = world.topic_records();
        writer.write(1).await;
        world.start_to_crash(step).crashed();
        let crashed = world.topic_records();
        assert_eq!(world.outbox_rows().await, again, "{step}");
        if let Some(at_crash) = at_crash {
            assert_eq!(crashed - before, at_crash, "{step}");
        }
        let daemon = world.start();
        daemon.ready().await;
        world.outbox_empties().await;
        daemon.stop();
        assert_eq!(world.topic_records() - crashed, again, "{step}");
    }
    world.has_published(&writer.written);
}

/// One crash after another without anything in between: what one has left behind must not confuse the next.
async fn relays_that_crash_one_after_another(kind: Kind) {
    let world = World::with_relay_on(kind, 3).await;
    let mut writer = world.writer("w", 12).await;
    for _ in 0..50 {
        writer.write(12).await;
    }
    for step in [
        "relay-after-report:3",
        "relay-after-produce:2",
        "relay-before-delete:1",
        "relay-before-report:3",
        "relay-after-delete:2",
        "relay-after-read:2",
    ] {
        world.start_to_crash(step).crashed();
    }
    let daemon = world.start();
    world.outbox_empties().await;
    let copies = world.has_published(&writer.written);
    assert!(copies > 0, "some were published before the crashes that lost track of them");
    daemon.stop();
}

/// SIGKILL at any moment, with applications that write all the time.
async fn relays_killed_under_load(kind: Kind) {
    const KILLS: i64 = 8;
    let world = World::with_relay_on(kind, 3).await;
    let load = world.load(2).await;
    let mut daemons = [world.start(), world.start()];
    for kill in 1..=KILLS {
        // Wherever it stands when the topic has grown a little: never at the same place.
        world.topic_reaches(world.topic_records() + 150 + 37 * kill).await;
        let slot = usize::try_from(kill).expect("few") % 2;
        let killed = std::mem::replace(&mut daemons[slot], world.start());
        killed.kill();
    }
    let written: Vec<Written> = load.end().await;
    world.outbox_empties().await;
    for daemon in daemons {
        daemon.stop();
    }
    world.has_published(&written);
}
