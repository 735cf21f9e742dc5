//! The database is wrong, not the messages: nothing is given up, and all goes on when it is mended.

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::mongo_set::WithUsers;
use crate::support::orders::orders;
use crate::support::world::World;

/// The same with statements of SQL.
async fn survives_statements(world: &World, broken: &str, mended: &str, word: &str) {
    let execute = async |sql: &str| {
        world.db.execute(sql).await;
    };
    survives(world, async || execute(broken).await, async || execute(mended).await, word).await;
}

/// Breaks something, sends 300 messages, sees red, mends it, sees everything applied.
async fn survives(world: &World, broken: impl AsyncFnOnce(), mended: impl AsyncFnOnce(), word: &str) {
    world.topic.send(&orders(0..20));
    let daemon = world.start();
    world.caught_up().await;
    world.turns(&daemon, 200).await;
    broken().await;
    world.topic.send(&orders(20..320));
    let unhealthy = world.turns(&daemon, 503).await;
    let named = unhealthy.iter().any(|l| l["alarm"].as_str().is_some_and(|alarm| alarm.contains(word)));
    assert!(named, "{word:?} is not in {unhealthy:?}");
    assert_eq!(world.dead("message_id").await, [""; 0], "no message is blamed");
    assert_eq!(world.db.rows("oncebox_inbox").await, 20, "and none is applied");
    mended().await;
    world.caught_up().await;
    world.has_exactly(&orders(0..320)).await;
    world.turns(&daemon, 200).await;
    assert_eq!(world.dead("message_id").await, [""; 0]);
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_missing_for_a_while_costs_no_message() {
    for kind in Kind::ALL {
        loses_for_a_while(kind, "stock").await;
    }
}

/// An insert would make it, and nobody would notice.
#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_is_only_inserted_into_and_is_missing_for_a_while_costs_no_message() {
    loses_for_a_while(Kind::Mongodb, "ledger").await;
}

async fn loses_for_a_while(kind: Kind, table: &str) {
    let world = World::new(kind, 2).await;
    let away = format!("{table}_old");
    let (broken, mended) =
        (async || world.db.rename(table, &away).await, async || world.db.rename(&away, table).await);
    survives(&world, broken, mended, table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_revoked_for_a_while_costs_no_message() {
    let mut world = World::new(Kind::Postgres, 2).await;
    let role = world.consumer.clone();
    let role = world.db.become_user(&role, &mut world.config.store).await;
    let (broken, mended) =
        (format!("REVOKE UPDATE ON stock FROM {role}"), format!("GRANT UPDATE ON stock TO {role}"));
    survives_statements(&world, &broken, &mended, "permission denied").await;

    // `check` sees it before any message does.
    world.db.execute(&broken).await;
    let found = world.oncebox(&["check", "--output", "json"]).exits(1).json();
    let told = found.as_array().into_iter().flatten().any(|f| {
        f["level"] == "error" && f["detail"].as_str().is_some_and(|detail| detail.contains("stock"))
    });
    assert!(told, "{found:#}");
    world.db.drop_user(&role).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_is_revoked_for_a_while_costs_no_message() {
    let server = WithUsers::start().await;
    let world = World::of_user(&server, 2).await;
    let (database, user) = (world.consumer.as_str(), format!("user_{}", world.consumer));
    let revoke = async || server.change("revokeRolesFromUser", database, &user).await;
    let grant = async || server.change("grantRolesToUser", database, &user).await;
    survives(&world, revoke, grant, "not authorized").await;

    // `check` sees it before any message does.
    revoke().await;
    let found = world.oncebox(&["check"]).exits(1);
    assert!(found.stdout.contains("not authorized"), "{found}");
}

/// A statement that fails for every message, by a code that says nothing about whose fault it is.
#[tokio::test(flavor = "multi_thread")]
async fn many_failures_in_a_row_are_not_the_messages() {
    let mut world = World::new(Kind::Postgres, 1).await;
    world.db.execute("CREATE TABLE switch (is_on BOOLEAN); ").await;
    world.db.execute("INSERT INTO switch VALUES (true)").await;
    world
        .db
        .execute(
            "CREATE FUNCTION guard() RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
             IF NOT (SELECT is_on FROM switch) THEN RAISE EXCEPTION 'the switch is off'; END IF; END $$",
        )
        .await;
    world.inbox(|inbox| inbox.first("\"SELECT guard()\""));
    world.topic.send(&orders(0..20));
    let daemon = world.start();
    world.caught_up().await;
    world.db.execute("UPDATE switch SET is_on = false").await;
    world.topic.send(&orders(20..320));
    world.turns(&daemon, 503).await;
    let given_up = world.dead("message_id").await.len();
    assert!(given_up <= 20, "{given_up} were given up before it was noticed");
    world.db.execute("UPDATE switch SET is_on = true").await;
    world.caught_up().await;
    world.turns(&daemon, 200).await;
    let applied = usize::try_from(world.effects().await).expect("few");
    let given_up = world.dead("message_id").await.len();
    assert_eq!(applied + given_up, 320, "each is applied or kept");
    eventually("what was given up can be replayed", async || {
        given_up == 0 || world.oncebox(&["dead", "replay", "--all"]).code == Some(0)
    })
    .await;
    world.has_exactly_in_any_order(&orders(0..320)).await;
    daemon.stop();
}
