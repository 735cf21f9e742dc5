//! `where`: what an inbox does not want is acknowledged, and nothing else.

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::{Order, orders};
use crate::support::topic::Odd;
use crate::support::world::World;

fn send(world: &World, order: &Order, kind: Option<&str>) {
    let mut headers = vec![("event_id", Some(order.id.as_bytes()))];
    headers.extend(kind.map(|kind| ("type", Some(kind.as_bytes()))));
    world.topic.send_odd(&Odd {
        partition: world.topic.partition_of(order),
        key: Some(order.key().as_bytes()),
        payload: Some(order.payload().as_bytes()),
        headers: &headers,
        timestamp: None,
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_wanted_is_applied() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 2).await;
        world.inbox(|inbox| {
            inbox.set("where", "{ header = \"type\", equals = [\"OrderShipped\", \"OrderCancelled\"] }")
        });
        let all = orders(0..40);
        let mut wanted = Vec::new();
        for (nth, order) in all.iter().enumerate() {
            let kind = [Some("OrderShipped"), Some("OrderCreated"), None, Some("OrderCancelled")][nth % 4];
            send(&world, order, kind);
            wanted.extend(matches!(nth % 4, 0 | 3).then(|| order.clone()));
        }
        // Neither a type nor an id: nobody asks for it.
        world.topic.send_odd(&Odd { payload: Some(b"{}"), ..Odd::default() });
        let daemon = world.start();
        world.caught_up().await;
        let of = |outcome: &str| {
            format!("oncebox_messages_total{{consumer=\"{}\",outcome=\"{outcome}\"}}", world.consumer)
        };
        for (outcome, messages) in [("filtered", 21.0), ("applied", 20.0), ("dead", 0.0)] {
            let series = of(outcome);
            eventually(&format!("{series} is {messages}"), async || {
                daemon.metric(&series).await == Some(messages)
            })
            .await;
        }
        assert_eq!(world.db.rows_of("oncebox_inbox", &world.consumer).await, 20, "{kind:?}: receipts");
        // A topic in which nothing is wanted any more is read to its end, too, and the group is told.
        for order in orders(40..60) {
            send(&world, &order, Some("OrderCreated"));
        }
        world.caught_up().await;
        daemon.stop();
        world.has_exactly(&wanted).await;
        assert!(world.dead("message_id").await.is_empty());
    }
}
