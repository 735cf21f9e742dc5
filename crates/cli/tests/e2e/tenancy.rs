//! A schema for each tenant, chosen by the handler.

use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::orders::{Order, orders};
use crate::support::topic::Odd;
use crate::support::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_choose_the_schema_of_a_tenant() {
    let mut world = World::new(Kind::Postgres, 2).await;
    let tenants = ["north", "south"];
    for tenant in tenants {
        world.db.execute(&format!("CREATE SCHEMA {tenant}")).await;
        world.db.execute(&format!("CREATE TABLE {tenant}.bookings (message_id TEXT, qty BIGINT)")).await;
    }
    world.db.execute("CREATE TABLE bookings (message_id TEXT, qty BIGINT)").await;
    let statements = vec![
        "\"SELECT set_config('search_path', :tenant, true)\"".to_owned(),
        "{ sql = \"INSERT INTO bookings VALUES (:id, (:payload->>'qty')::bigint)\", rows = 1 }".to_owned(),
        "\"SELECT public.oncebox_emit('booked', :id, '{}')\"".to_owned(),
    ];
    let inbox = Inbox::new(&world.consumer, &world.topic.name, statements);
    world.config.inboxes = vec![inbox.set("tenant", "\"header:tenant\"")];
    let send = |order: &Order, tenant: &str| {
        world.topic.send_odd(&Odd {
            partition: world.topic.partition_of(order),
            key: Some(order.key().as_bytes()),
            payload: Some(order.payload().as_bytes()),
            headers: &[("event_id", Some(order.id.as_bytes())), ("tenant", Some(tenant.as_bytes()))],
            ..Odd::default()
        });
    };
    // Both tenants use the same ids, and each message comes twice.
    for _ in 0..2 {
        for order in &orders(0..40) {
            for tenant in tenants {
                send(order, tenant);
            }
        }
    }
    let daemon = world.start();
    world.caught_up().await;
    assert_eq!(world.dead("error").await, [""; 0]);
    let count = |table: String| {
        let world = &world;
        async move { world.db.number(&format!("SELECT COUNT(*) FROM {table}")).await }
    };
    for tenant in tenants {
        assert_eq!(count(format!("{tenant}.bookings")).await, 40);
        let receipts = format!("oncebox_inbox WHERE tenant = '{tenant}'");
        assert_eq!(count(receipts).await, 40);
    }
    assert_eq!(count("bookings".to_owned()).await, 0);
    assert_eq!(count("oncebox_outbox".to_owned()).await, 80, "events are where the relay looks");
    assert_eq!(world.duplicates().await, 80);
    daemon.stop();
}
