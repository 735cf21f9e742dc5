//! Copies change nothing, whoever makes them.

use oncebox::Selector;

use crate::fixture::{Fixture, Partition, record, record_effect};

fn by_header() -> Selector {
    Selector::Header("id".into())
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_in_one_batch_and_in_later_ones_are_skipped() {
    let fixture = Fixture::new().await;
    let worker = fixture.inbox().id(by_header()).each(record_effect);
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "a", "k"), record(1, "a", "k"), record(2, "b", "k")]);
    partition.settled(3).await;
    partition.push([record(3, "b", "k"), record(4, "c", "k")]);
    partition.settled(5).await;
    assert_eq!(fixture.effects().await, ["a", "b", "c"]);
    let counted = fixture
        .texts("SELECT applied || ' ' || duplicates || ' ' || next_offset FROM oncebox_position")
        .await;
    assert_eq!(counted, ["3 2 5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_consumers_have_a_receipt_each() {
    let fixture = Fixture::new().await;
    for consumer in ["one", "two"] {
        let worker =
            oncebox::Inbox::new(consumer, fixture.store.clone()).unwrap().id(by_header()).each(record_effect);
        let partition = Partition::open(&worker).await;
        partition.push([record(0, "a", "k")]);
        partition.settled(1).await;
    }
    assert_eq!(fixture.effects().await, ["a", "a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_of_two_tenants_is_two_messages() {
    let fixture = Fixture::new().await;
    let worker = fixture.inbox().id(by_header()).tenant(Selector::Key).each(record_effect);
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "a", "acme"), record(1, "a", "zenith"), record(2, "a", "acme")]);
    partition.settled(3).await;
    assert_eq!(fixture.effects().await, ["a", "a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_owner_reads_again_from_the_committed_offset_and_applies_nothing_twice() {
    let fixture = Fixture::new().await;
    let worker = fixture.inbox().id(by_header()).each(record_effect);
    let records: Vec<_> = (0..20).map(|i| record(i, &format!("m{i}"), "k")).collect();
    let first = Partition::open(&worker).await;
    first.push(records[..10].to_vec());
    first.settled(10).await;
    first.close().await;

    let second = Partition::open_at(worker.intake(), Some(4)).await;
    second.push(records[4..].to_vec());
    second.settled(20).await;
    let ids: Vec<String> = (0..20).map(|i| format!("m{i}")).collect();
    assert_eq!(fixture.effects().await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_cannot_commit() {
    let fixture = Fixture::new().await;
    let worker = fixture.inbox().id(by_header()).each(record_effect);
    let zombie = Partition::open(&worker).await;
    // It has begun for good; otherwise it might learn of the owner before it has a batch.
    zombie.push([record(0, "first", "k")]);
    zombie.settled(1).await;
    let owner = Partition::open(&worker).await;
    zombie.push([record(1, "stale", "k")]);
    crate::fixture::eventually("the zombie stands still", || zombie.stream.stopped().is_some()).await;
    assert_eq!(fixture.effects().await, ["first"], "nothing of the zombie's batch is visible");
    owner.push([record(1, "stale", "k")]);
    owner.settled(2).await;
    assert_eq!(fixture.effects().await, ["first", "stale"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_its_id_is_dead_lettered_once_and_never_applied() {
    let fixture = Fixture::new().await;
    let worker = fixture.inbox().id(Selector::Header("missing".into())).each(record_effect);
    for _ in 0..2 {
        let partition = Partition::open_at(worker.intake(), Some(0)).await;
        partition.push([record(0, "a", "k")]);
        partition.settled(1).await;
        partition.close().await;
    }
    assert_eq!(fixture.effects().await, Vec::<String>::new());
    let errors = fixture.errors().await;
    assert_eq!(errors.len(), 1, "one dead letter for one record");
    assert!(errors[0].contains("missing"), "{errors:?}");
}
