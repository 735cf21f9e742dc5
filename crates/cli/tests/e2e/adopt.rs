//! Tables that people wrote by hand, as `examples/adopt` has them, taken over by the daemon; and the move to oncebox's own.

use std::path::Path;

use uuid::Uuid;

use crate::support::command::Answer;
use crate::support::database::Kind;
use crate::support::topic::Odd;
use crate::support::world::World;

/// One of the examples, in a world of its own.
struct Example {
    world: World,
    config: String,
    table: &'static str,
    /// What the old code writes, up to the id.
    insert: &'static str,
    ids: Vec<String>,
}

const FILE: &str = "adopt.toml";

impl Example {
    async fn new(folder: &str, kind: Kind, table: &'static str, insert: &'static str) -> Self {
        let world = World::new(kind, 1).await;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/adopt").join(folder);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the example has it");
        match kind {
            Kind::Mongodb => world.db.create_collections_of(&read("collections.js")).await,
            _ => world.db.script(&read("schema.sql")).await,
        }
        let mut config = String::new();
        for line in read("oncebox.toml").lines() {
            config.push_str(&match line.split(" = ").next() {
                Some("url") => format!("url = {:?}", world.db.url),
                Some("brokers") => format!("brokers = {:?}", world.topic.brokers),
                Some("topics") => format!("topics = [{:?}]\ngroup = {:?}", world.topic.name, world.consumer),
                _ => line.to_owned(),
            });
            config.push('\n');
        }
        config.push_str("[http]\nlisten = \"127.0.0.1:0\"\n");
        let example = Self { world, config, table, insert, ids: Vec::new() };
        example.configure(&example.config);
        example
    }

    fn configure(&self, text: &str) {
        std::fs::write(self.world.folder().join(FILE), text).expect("the configuration is written");
    }

    fn oncebox(&self, arguments: &[&str]) -> Answer {
        Answer::of(self.world.folder(), [arguments, &["--config", FILE]].concat())
    }

    fn new_ids(&mut self, count: usize) {
        self.ids.extend((0..count).map(|_| Uuid::now_v7().to_string()));
    }

    /// All messages there are, each as an event of its own that takes one out of the stock.
    fn send_all(&self) {
        for id in &self.ids {
            self.world.topic.send_odd(&Odd {
                payload: Some(br#"{"sku":"sku-1","qty":1}"#),
                headers: &[("event_id", Some(id.as_bytes())), ("type", Some(b"StockTaken"))],
                ..Odd::default()
            });
        }
    }

    /// What the old code does with a message. False if it has seen it.
    async fn old_code_applies(&self, id: &str) -> bool {
        if self.world.db.kind == Kind::Mongodb {
            return self.world.db.inserts_and_takes_one(self.table, id).await;
        }
        let once = if self.insert.starts_with("INSERT IGNORE") { "" } else { "ON CONFLICT DO NOTHING" };
        let insert = format!("{} '{id}') {once}", self.insert);
        let fresh = self.world.db.execute(&insert).await == 1;
        if fresh {
            self.world.db.execute("UPDATE stock SET on_hand = on_hand - 1 WHERE sku = 'sku-1'").await;
        }
        fresh
    }

    async fn settled(&self) {
        self.world.caught_up_of("inventory").await;
        // Nobody takes anything else.
        let taken = self.world.db.gone().await;
        assert_eq!(taken, i64::try_from(self.ids.len()).expect("not so many"));
        assert_eq!(self.world.dead("error").await, [""; 0]);
    }

    async fn rows(&self, table: &str) -> usize {
        usize::try_from(self.world.db.rows(table).await).expect("a count")
    }
}

async fn is_taken_over(mut example: Example) {
    // The old code has been at it for a while, and goes on while oncebox starts.
    example.new_ids(30);
    for id in &example.ids[..10] {
        assert!(example.old_code_applies(id).await);
    }
    example.send_all();
    example.oncebox(&["migrate"]).exits(0);
    let checked = example.oncebox(&["check"]);
    assert!(checked.stdout.contains("receipts go here"), "{checked}");
    let daemon = example.world.start_with(&["--config", FILE], &[]);
    for id in &example.ids[5..20] {
        example.old_code_applies(id).await;
    }
    example.send_all();
    example.settled().await;
    assert_eq!(example.rows(example.table).await, 30);
    assert_eq!(example.rows("oncebox_inbox").await, 0, "the team's table is the only one");
    assert!(!example.old_code_applies(&example.ids[29]).await, "the old code knows what oncebox has applied");
    daemon.stop();
    let purged = example.oncebox(&["purge", "--output", "json"]).exits(0).json();
    assert_eq!(purged["receipts"], 0, "all of them are young");

    // And one day it moves.
    let table = example.table;
    let counted = example.oncebox(&["migrate", "adopt", "--from", table, "--dry-run"]).exits(0);
    assert!(counted.stdout.contains("would copy: 30 receipts"), "{counted}");
    let moved =
        example.oncebox(&["migrate", "adopt", "--from", table]).exits(0).says(&["remove [store.adopt]"]);
    // A collection keeps its name, and refuses what is new.
    let closed = match example.world.db.kind {
        Kind::Mongodb => format!("{table} takes no more of them"),
        _ => format!("{table} is called {table}_adopted now"),
    };
    assert!(moved.stdout.contains(&closed), "{moved}");
    example.oncebox(&["migrate", "adopt", "--from", table]).exits(0);
    let section = example.config.find("[store.adopt]").expect("the example adopts a table");
    let rest = example.config[section..].find("[kafka]").expect("it has a broker") + section;
    example.configure(&format!("{}{}", &example.config[..section], &example.config[rest..]));
    example.new_ids(5);
    example.send_all();
    let daemon = example.world.start_with(&["--config", FILE], &[]);
    example.settled().await;
    assert_eq!(example.rows("oncebox_inbox").await, 35);
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_go_and_bun() {
    let insert = "INSERT INTO inventory_inbox (message_id) VALUES (";
    is_taken_over(Example::new("go-bun", Kind::Sqlite, "inventory_inbox", insert).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_plain_sql() {
    let insert = "INSERT INTO inbox (event_id) VALUES (";
    is_taken_over(Example::new("plain-sql", Kind::Postgres, "inbox", insert).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_on_mariadb() {
    a_table_of_mysql(Kind::Mariadb).await;
}

#[cfg(feature = "mysql-server")]
#[tokio::test(flavor = "multi_thread")]
async fn a_table_on_mysql() {
    a_table_of_mysql(Kind::Mysql).await;
}

async fn a_table_of_mysql(kind: Kind) {
    let insert = "INSERT IGNORE INTO inbox_messages (message_id) VALUES (";
    is_taken_over(Example::new("mysql", kind, "inbox_messages", insert).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_django() {
    let insert = "INSERT INTO shop_inboxevent (consumer, event_type, processed_at, event_id) \
         VALUES ('inventory', '', now(),";
    let example = Example::new("django", Kind::Postgres, "shop_inboxevent", insert).await;
    is_taken_over(example).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_on_mongodb() {
    is_taken_over(Example::new("mongodb", Kind::Mongodb, "inbox_event", "").await).await;
}

/// What a table cannot hold is kept as a dead letter, without a receipt; the rest goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_fit_is_a_dead_letter() {
    let insert = "INSERT INTO shop_inboxevent (consumer, event_type, processed_at, event_id) \
         VALUES ('inventory', '', now(),";
    let mut example = Example::new("django", Kind::Postgres, "shop_inboxevent", insert).await;
    example.world.db.execute("ALTER TABLE shop_inboxevent ADD CHECK (event_type <> 'Forbidden')").await;
    let send = |id: &str, headers: &[(&str, &str)]| {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, Some(value.as_bytes()))).collect();
        let headers = [&[("event_id", Some(id.as_bytes()))], headers.as_slice()].concat();
        let payload = Some(br#"{"sku":"sku-1","qty":1}"#.as_slice());
        example.world.topic.send_odd(&Odd { payload, headers: &headers, ..Odd::default() });
    };
    send("order-1", &[("type", "StockTaken")]);
    send(&Uuid::now_v7().to_string(), &[]);
    send(&Uuid::now_v7().to_string(), &[("type", "Forbidden")]);
    example.new_ids(3);
    example.send_all();
    let daemon = example.world.start_with(&["--config", FILE], &[]);
    example.world.caught_up_of("inventory").await;
    let errors = example.world.dead("error").await;
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].contains("the id is not a UUID"), "{errors:?}");
    assert!(errors[1].contains("event_type must not be NULL"), "{errors:?}");
    assert!(errors[2].contains("check constraint"), "{errors:?}");
    assert_eq!(example.rows("shop_inboxevent").await, 3);
    // The cause is mended: two of them have an id that fits now.
    example
        .world
        .db
        .execute("ALTER TABLE shop_inboxevent DROP CONSTRAINT shop_inboxevent_event_type_check")
        .await;
    example.world.db.execute("ALTER TABLE shop_inboxevent ALTER event_type DROP NOT NULL").await;
    example.oncebox(&["dead", "replay", "--all"]);
    assert_eq!(example.world.dead("error").await.len(), 1);
    assert_eq!(example.rows("shop_inboxevent").await, 5);
    daemon.stop();
}

/// What would break the promise is refused at the start.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_will_not_do_is_refused_at_the_start() {
    let example = Example::new("plain-sql", Kind::Postgres, "inbox", "").await;
    example.world.db.execute("ALTER TABLE inbox DROP CONSTRAINT inbox_pkey").await;
    let refused = example.oncebox(&["run"]).exits(3);
    assert!(
        refused.stderr.contains("CREATE UNIQUE INDEX inbox_once ON \"inbox\" (\"event_id\")"),
        "{refused}"
    );
    let checked = example.oncebox(&["check"]).exits(1);
    assert!(checked.stdout.contains("CREATE UNIQUE INDEX"), "{checked}");
    // Nobody says whose receipts they are, or which column holds them.
    example.oncebox(&["migrate", "adopt", "--from", "elsewhere"]).exits(2).says(&["--message-id"]);
}
