//! `oncebox.toml`, as a test wants it.

use std::collections::BTreeMap;

use super::database::Kind;

/// What a test changes before it starts a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) store: String,
    /// Further keys of the store, as they stand in the file.
    pub(crate) store_more: String,
    pub(crate) brokers: String,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) inboxes: Vec<Inbox>,
    /// `[outbox]`: keys with the text of their values.
    pub(crate) outbox: BTreeMap<String, String>,
    /// Further sections, as they stand in the file.
    pub(crate) more: String,
}

/// `[[inbox]]`: keys with the text of their values, and the statements.
#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    pub(crate) consumer: String,
    settings: BTreeMap<String, String>,
    /// `each` or `batch`.
    handler: &'static str,
    statements: Vec<String>,
}

impl Config {
    pub(crate) fn new(store: &str, brokers: &str) -> Self {
        // A real broker does not take a shorter session. Whatever is killed is missed after it.
        let properties = [("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "500")];
        Self {
            store: store.to_owned(),
            store_more: String::new(),
            brokers: brokers.to_owned(),
            properties: properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            inboxes: Vec::new(),
            outbox: BTreeMap::new(),
            more: String::new(),
        }
    }

    /// Lets a restarted process take its partitions at once instead of after the session of its predecessor: for tests
    /// that restart a single process many times.
    pub(crate) fn with_static_membership(&mut self) {
        self.properties.insert("group.instance.id".to_owned(), "only".to_owned());
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "[store]\nurl = {store:?}\n{more}\n[kafka]\nbrokers = {brokers:?}\n\n[kafka.properties]\n",
            store = self.store,
            more = self.store_more,
            brokers = self.brokers,
        );
        for (name, value) in &self.properties {
            text.push_str(&format!("{name:?} = {value:?}\n"));
        }
        text.push_str("\n[http]\nlisten = \"127.0.0.1:0\"\n\n");
        for inbox in &self.inboxes {
            text.push_str(&format!("[[inbox]]\nconsumer = {:?}\n", inbox.consumer));
            for (name, value) in &inbox.settings {
                text.push_str(&format!("{name} = {value}\n"));
            }
            text.push_str(&format!(
                "[inbox.handler]\n{} = [\n  {},\n]\n\n",
                inbox.handler,
                inbox.statements.join(",\n  ")
            ));
        }
        text.push_str("[outbox]\n");
        for (name, value) in &self.outbox {
            text.push_str(&format!("{name} = {value}\n"));
        }
        text.push_str(&format!("\n{}", self.more));
        text
    }
}

impl Kind {
    /// The article, the quantity and the sequence of an order.
    fn fields(self, payload: &str) -> [String; 3] {
        let text = |name: &str| match self {
            Self::Mongodb => panic!("MongoDB speaks no SQL"),
            Self::Mariadb | Self::Mysql => format!("JSON_VALUE({payload}, '$.{name}')"),
            Self::Postgres | Self::Sqlite => format!("{payload}->>'{name}'"),
        };
        let number = |name: &str| match self {
            Self::Mariadb | Self::Mysql => format!("CAST({} AS SIGNED)", text(name)),
            Self::Postgres => format!("({})::bigint", text(name)),
            Self::Sqlite | Self::Mongodb => text(name),
        };
        [text("sku"), number("qty"), number("seq")]
    }
}

impl Inbox {
    /// Takes the orders of a topic out of the stock and writes them into the ledger.
    pub(crate) fn of_orders(kind: Kind, consumer: &str, topic: &str) -> Self {
        if kind == Kind::Mongodb {
            return Self::new(consumer, topic, of_orders_in_operations(consumer));
        }
        let [sku, qty, seq] = kind.fields(":payload");
        let each = vec![
            format!("{{ sql = \"UPDATE stock SET on_hand = on_hand - {qty} WHERE sku = {sku}\", rows = 1 }}"),
            format!(
                "{{ sql = \"INSERT INTO ledger (consumer, message_id, sku, qty, seq) \
                 VALUES ('{consumer}', :id, {sku}, {qty}, {seq})\", rows = 1 }}"
            ),
        ];
        Self::new(consumer, topic, each)
    }

    /// The same with set-based statements.
    pub(crate) fn of_orders_in_batches(kind: Kind, consumer: &str, topic: &str) -> Self {
        if kind == Kind::Mongodb {
            return Self::new(consumer, topic, in_pipelines(consumer)).in_batches();
        }
        let [sku, qty, seq] = kind.fields("payload");
        let sums = format!("(SELECT {sku} AS sku, SUM({qty}) AS qty FROM messages GROUP BY {sku}) AS m");
        let update = match kind {
            Kind::Mariadb | Kind::Mysql => {
                format!("UPDATE stock JOIN {sums} ON stock.sku = m.sku SET on_hand = on_hand - m.qty")
            }
            Kind::Mongodb | Kind::Postgres | Kind::Sqlite => {
                format!("UPDATE stock SET on_hand = on_hand - m.qty FROM {sums} WHERE stock.sku = m.sku")
            }
        };
        let statements = vec![
            format!("\"{update}\""),
            format!(
                "\"INSERT INTO ledger (consumer, message_id, sku, qty, seq) \
                 SELECT '{consumer}', id, {sku}, {qty}, {seq} FROM messages ORDER BY {seq}\""
            ),
        ];
        Self::new(consumer, topic, statements).in_batches()
    }

    /// With statements of its own, as they stand in the file.
    pub(crate) fn new(consumer: &str, topic: &str, each: Vec<String>) -> Self {
        let consumer = consumer.to_owned();
        let inbox = Self { consumer, settings: BTreeMap::new(), handler: "each", statements: each };
        inbox
            .set("topics", &format!("[{topic:?}]"))
            .set("id", "\"header:event_id\"")
            // Small, so that there are many transactions to interrupt.
            .set("batch", "{ messages = 20 }")
            .set("retry", "{ attempts = 2, backoff = \"10ms..50ms\" }")
    }

    /// The statements are for whole batches.
    pub(crate) fn in_batches(self) -> Self {
        Self { handler: "batch", ..self }
    }

    /// Sets a key to a value, as it stands in the file.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Reads a queue of RabbitMQ instead of topics. Needs `[rabbitmq]`.
    pub(crate) fn reading_queue(mut self, queue: &str) -> Self {
        self.settings.remove("topics");
        self.set("queue", &format!("{queue:?}"))
    }

    /// Adds a statement before all others.
    pub(crate) fn first(mut self, statement: &str) -> Self {
        self.statements.insert(0, statement.to_owned());
        self
    }

    /// Adds a statement behind all others.
    pub(crate) fn and(mut self, statement: &str) -> Self {
        self.statements.push(statement.to_owned());
        self
    }

    /// The handler waits for the gate of the database. Any number of them can pass it at once.
    pub(crate) fn gated(self, kind: Kind) -> Self {
        match kind {
            // Nobody can share this lock, so everybody lets go of it at once.
            Kind::Mariadb | Kind::Mysql => {
                self.first("\"DO RELEASE_LOCK(DATABASE())\"").first("\"DO GET_LOCK(DATABASE(), 60)\"")
            }
            // On its way to the server.
            Kind::Mongodb => self,
            Kind::Postgres | Kind::Sqlite => self.first("\"SELECT pg_advisory_xact_lock_shared(1)\""),
        }
    }

    /// The orders again as events, each in the transaction that applies it.
    pub(crate) fn of_orders_with_events(kind: Kind, consumer: &str, topic: &str, events: &str) -> Self {
        match kind {
            // A procedure, so there is no calling it for many rows at once.
            Kind::Mariadb | Kind::Mysql => Self::of_orders(kind, consumer, topic)
                .and(&format!("\"CALL oncebox_emit('{events}', :key, :payload, NULL, @event)\"")),
            Kind::Mongodb => Self::of_orders(kind, consumer, topic)
                .and(&format!("{{ emit = {events:?}, key = \":key\", payload = \":payload\" }}")),
            Kind::Postgres | Kind::Sqlite => Self::of_orders_in_batches(kind, consumer, topic).and(&format!(
                "\"SELECT oncebox_emit('{events}', key, payload::json) FROM messages ORDER BY (payload->>'seq')::bigint\""
            )),
        }
    }
}

/// What the ledger of many processes cannot tell is written down beside the stock: which order was the last of an article, and which
/// ones came behind a later one.
fn of_orders_in_operations(consumer: &str) -> Vec<String> {
    let late = format!(
        "{{ \"$concatArrays\" = [\"$late\", {{ \"$cond\" = [\
         {{ \"$lte\" = [\":payload.seq\", \"$last.{consumer}\"] }}, [\":id\"], []] }}] }}"
    );
    let taken = "{ \"$subtract\" = [\"$on_hand\", \":payload.qty\"] }";
    vec![
        format!(
            "{{ update = \"stock\", filter = {{ _id = \":payload.sku\" }}, rows = 1, with = [{{ \"$set\" = {{ \
             on_hand = {taken}, late = {late}, \"last.{consumer}\" = \":payload.seq\" }} }}] }}"
        ),
        format!(
            "{{ insert = \"ledger\", document = {{ consumer = \"{consumer}\", message_id = \":id\", \
             sku = \":payload.sku\", qty = \":payload.qty\", seq = \":payload.seq\" }} }}"
        ),
    ]
}

/// The same with a pipeline. What came too late is told by the first order of an article in a batch.
fn in_pipelines(consumer: &str) -> Vec<String> {
    let sums = "{ \"$group\" = { _id = \"$payload.sku\", qty = { \"$sum\" = \"$payload.qty\" }, \
                first = { \"$min\" = \"$payload.seq\" }, last = { \"$max\" = \"$payload.seq\" } } }";
    let late = format!(
        "{{ \"$concatArrays\" = [\"$late\", {{ \"$cond\" = [\
         {{ \"$lte\" = [\":row.first\", \"$last.{consumer}\"] }}, [\":row._id\"], []] }}] }}"
    );
    let taken = "{ \"$subtract\" = [\"$on_hand\", \":row.qty\"] }";
    vec![
        format!(
            "{{ messages = [{sums}], update = \"stock\", filter = {{ _id = \":row._id\" }}, rows = 1, with = [{{ \"$set\" = {{ \
             on_hand = {taken}, late = {late}, \"last.{consumer}\" = \":row.last\" }} }}] }}"
        ),
        format!(
            "{{ insert = \"ledger\", document = {{ consumer = \"{consumer}\", message_id = \":row.id\", \
             sku = \":row.payload.sku\", qty = \":row.payload.qty\", seq = \":row.payload.seq\" }} }}"
        ),
    ]
}
