//! What is refused: each case names the key, the line and a part of what is said.

use oncebox_sql::{Sql, StatementError};

use crate::{Config, Problems, RefusedProperty, StoreKind, Surroundings};

/// The lines are numbered so that the cases can count on them.
const BASE: &str = r#"[store]
url = "postgres://erp@localhost/erp"
[kafka]
brokers = "localhost:9092"
[kafka.properties]
"security.protocol" = "plaintext"
[http]
listen = "127.0.0.1:7878"
[[inbox]]
consumer = "stock"
topics = ["stock.updates"]
id = "header:event_id"
retention = "7d"
[inbox.handler]
each = [
  "SELECT :id",
  { sql = "SELECT :key", rows = 1 },
]
[outbox]
relay = true
[[webhook]]
topics = ["invoice.*"]
url = "https://host/path"
[[sweep]]
name = "due"
every = "5m"
sql = "SELECT id, customer FROM invoice"
key = "id"
emit = { topic = "invoice.mail", key = "customer" }
"#;

fn parse(text: &str) -> Result<Config, Problems> {
    let env = |name: &str| (name == "SET").then(|| "value".to_owned());
    let surroundings = Surroundings {
        env: &env,
        check_dialect: &no_questions,
        refused_property: &refused_property,
        ..Surroundings::default()
    };
    Config::parse(text, &surroundings)
}

fn problems(text: &str) -> Problems {
    parse(text).unwrap_err()
}

/// A dialect in which `?` is a placeholder.
fn no_questions(store: StoreKind, sql: &Sql) -> Result<(), StatementError> {
    match sql.source().find('?').filter(|_| store == StoreKind::Sqlite) {
        Some(offset) => Err(StatementError::Positional { text: "?".to_owned(), offset }),
        None => Ok(()),
    }
}

/// A client that wants some properties for itself.
fn refused_property(name: &str, value: &str) -> Option<RefusedProperty> {
    let refused = |why, instead| Some(RefusedProperty { why, instead });
    match (name, value) {
        ("enable.auto.commit", _) => refused("it commits", None),
        ("auto.offset.reset", _) => refused("a gap is an error", Some("start")),
        ("group.id", _) => refused("each has its own", Some("group")),
        ("bootstrap.servers", _) => refused("once is enough", Some("brokers")),
        ("statistics.interval.ms", "0") => refused("it reads them", None),
        _ => None,
    }
}

/// In place of this text of the base, this text; the key, the line, and a part of the message or the fix.
type Case = (&'static str, &'static str, &'static str, usize, &'static str);

const CASES: &[Case] = &[
    // Unknown keys, at every level.
    ("[http]", "[htttp]", "htttp", 7, "did you mean `http`? Known here: store, kafka,"),
    ("[outbox]", "[handler]\n[outbox]", "handler", 19, "this key is not known; remove it; known here: store"),
    ("url = ", "ulr = 1\nurl = ", "store.ulr", 2, "did you mean `url`"),
    ("brokers", "broker = 1\nbrokers", "kafka.broker", 4, "did you mean `brokers`"),
    ("retention =", "retension =", "inbox[0].retension", 13, "did you mean `retention`"),
    ("retention =", "on-failure = 1\nretention =", "inbox[0].on-failure", 13, "did you mean `on_failure`"),
    ("each = [", "eech = 1\neach = [", "inbox[0].handler.eech", 15, "did you mean `each`"),
    (", rows = 1", ", row = 1", "inbox[0].handler.each[1].row", 17, "did you mean `rows`"),
    ("relay = true", "relay = true\nrelai = false", "outbox.relai", 21, "did you mean `relay`"),
    ("url = \"https", "urk = 1\nurl = \"https", "webhook[0].urk", 23, "did you mean `url`"),
    ("key = \"id\"", "kye = 1\nkey = \"id\"", "sweep[0].kye", 28, "did you mean `key`"),
    (", key = \"customer\"", ", ky = \"customer\"", "sweep[0].emit.ky", 29, "did you mean `key`"),
    ("id =", "batch = { message = 1 }\nid =", "inbox[0].batch.message", 12, "did you mean `messages`"),
    ("id =", "retry = { tries = 1 }\nid =", "inbox[0].retry.tries", 12, "known here: attempts, backoff"),
    // Wrong types.
    ("\"postgres://erp@localhost/erp\"", "5", "store.url", 2, "this is an integer; write a string"),
    ("[\"stock.updates\"]", "\"stock.updates\"", "inbox[0].topics", 11, "this is a string; write an array"),
    ("[\"stock.updates\"]", "[1]", "inbox[0].topics[0]", 11, "this is an integer; write a string"),
    ("\"7d\"", "7", "inbox[0].retention", 13, "this is an integer; write a duration"),
    ("id =", "lanes = \"1\"\nid =", "inbox[0].lanes", 12, "this is a string; write an integer from 1 to 64"),
    ("id =", "batch = 5\nid =", "inbox[0].batch", 12, "this is an integer; write a table"),
    ("id =", "start = true\nid =", "inbox[0].start", 12, "this is a boolean; write one of earliest"),
    ("relay = true", "keep = 1", "outbox.keep", 20, "this is an integer; write a duration"),
    ("\"SELECT :id\"", "1.5", "inbox[0].handler.each[0]", 16, "this is a float; write a string"),
    ("\"plaintext\"", "[1]", "kafka.properties.\"security.protocol\"", 6, "this is an array"),
    (
        "= { topic = \"invoice.mail\", key = \"customer\" }",
        "= \"t\"",
        "sweep[0].emit",
        29,
        "this is a string; write a table",
    ),
    // Missing.
    ("url = \"postgres://erp@localhost/erp\"", "", "store.url", 1, "no database"),
    ("consumer = \"stock\"", "", "inbox[0].consumer", 9, "it is missing"),
    ("topics = [\"stock.updates\"]", "", "inbox[0].topics", 9, "it is missing"),
    ("id = \"header:event_id\"", "", "inbox[0].id", 9, "there is no default: a wrong guess drops messages"),
    ("brokers = \"localhost:9092\"", "", "kafka.brokers", 3, "it is missing"),
    ("sql = \"SELECT :key\", ", "", "inbox[0].handler.each[1].sql", 17, "it is missing"),
    // Bad values: store.
    ("postgres://erp@localhost/erp", "", "store.url", 2, "this is empty"),
    ("postgres://erp@localhost/erp", "erp", "store.url", 2, "not a database URL"),
    ("postgres://erp@localhost/erp", "oracle://x", "store.url", 2, "scheme of this URL is not known"),
    ("postgres://erp@localhost/erp", "mysql://x", "store.url", 2, "names no database"),
    ("postgres://erp@localhost/erp", "mariadb://x/?socket=/run/x", "store.url", 2, "names no database"),
    (
        "postgres://erp@localhost/erp",
        "mongodb://a,b:27018/?replicaSet=rs",
        "store.url",
        2,
        "names no database",
    ),
    ("postgres://erp@localhost/erp", "mongodb+srv://x", "store.url", 2, "names no database"),
    ("[kafka]", "event_type = \"header:type\"\n[kafka]", "store.event_type", 3, "`set` under [store.adopt]"),
    ("\"SELECT :id\"", "{ delete = \"t\" }", "inbox[0].handler.each[0]", 16, "an operation of MongoDB"),
    ("[[sweep]]", "[[sweep]]\naggregate = \"t\"", "sweep[0].aggregate", 25, "write `sql` instead"),
    ("postgres://erp@localhost/erp", "sqlite://?mode=rwc", "store.url", 2, "names no file"),
    ("postgres://erp@localhost/erp", "sqlite::memory:", "store.url", 2, "not a database URL"),
    ("[kafka]", "max_connections = 0\n[kafka]", "store.max_connections", 3, "0 is out of range"),
    ("[kafka]", "partition_receipts = \"week\"\n[kafka]", "store.partition_receipts", 3, "one of none, day"),
    (
        "postgres://erp@localhost/erp\"",
        "sqlite://x\"\npartition_receipts = \"day\"",
        "store.partition_receipts",
        3,
        "SQLite has no partitioned tables",
    ),
    (
        "postgres://erp@localhost/erp\"",
        "mysql://erp@localhost/erp\"\npartition_receipts = \"day\"",
        "store.partition_receipts",
        3,
        "hold up every transaction while a partition is made or dropped; remove the key",
    ),
    // An adopted table.
    ("[kafka]", "[store.adopt]\nmessage_id = \"id\"\n[kafka]", "store.adopt.table", 3, "it is missing"),
    ("[kafka]", "[store.adopt]\ntable = \"inbox\"\n[kafka]", "store.adopt.message_id", 3, "it is missing"),
    (
        "[kafka]",
        "[store.adopt]\ntable = \"in box\"\nmessage_id = \"id\"\n[kafka]",
        "store.adopt.table",
        4,
        "not a name that can be adopted",
    ),
    (
        "[kafka]",
        "[store.adopt]\ntable = \"oncebox_inbox\"\nmessage_id = \"id\"\n[kafka]",
        "store.adopt.table",
        4,
        "oncebox's own",
    ),
    (
        "[kafka]",
        "[store.adopt]\ntable = \"a.b\"\nmessage_id = \"a;b\"\n[kafka]",
        "store.adopt.message_id",
        5,
        "not a name that can be adopted",
    ),
    (
        "[kafka]",
        "[store.adopt]\ntable = \"a\"\nmessage_id = \"id\"\nid_format = \"guid\"\n[kafka]",
        "store.adopt.id_format",
        6,
        "is no format of ids",
    ),
    (
        "[kafka]",
        "[store.adopt]\ntable = \"a\"\nmessage_id = \"id\"\ntenant = \"id\"\n[kafka]",
        "store.adopt.tenant",
        6,
        "the column id is named twice",
    ),
    (
        "[kafka]",
        "[store.adopt]\ntable = \"a\"\nmessage_id = \"id\"\nset = { kind = \"type\" }\n[kafka]",
        "store.adopt.set.\"kind\"",
        6,
        "`type` is not a selector",
    ),
    (
        "[kafka]",
        "[store.adopt]\ntable = \"a\"\nmessage_id = \"id\"\ntime = \"at\"\n[kafka]",
        "store.adopt.time",
        6,
        "known here: table, message_id, id_format, processed_at, consumer, tenant, set",
    ),
    (
        "[kafka]",
        "partition_receipts = \"day\"\nadopt = { table = \"a\", message_id = \"id\" }\n[kafka]",
        "store.adopt",
        4,
        "not partitioned by day",
    ),
    // Bad values: kafka and http.
    ("localhost:9092", "a:1,,b:2", "kafka.brokers", 4, "an empty name"),
    (
        "\"security.protocol\"",
        "\"enable.auto.commit\"",
        "kafka.properties.\"enable.auto.commit\"",
        6,
        "oncebox controls this property itself: it commits; remove it",
    ),
    (
        "\"security.protocol\"",
        "\"auto.offset.reset\"",
        "kafka.properties.\"auto.offset.reset\"",
        6,
        "use `start` under [[inbox]]",
    ),
    (
        "\"security.protocol\"",
        "\"group.id\"",
        "kafka.properties.\"group.id\"",
        6,
        "use `group` under [[inbox]]",
    ),
    (
        "\"security.protocol\" = \"plaintext\"",
        "\"statistics.interval.ms\" = 0",
        "kafka.properties.\"statistics.interval.ms\"",
        6,
        "it reads them; remove it",
    ),
    (
        "\"security.protocol\"",
        "\"bootstrap.servers\"",
        "kafka.properties.\"bootstrap.servers\"",
        6,
        "use `brokers` under [kafka]",
    ),
    (
        "\"security.protocol\"",
        "security.protocol",
        "kafka.properties.\"security\"",
        6,
        "put the whole name in quotes",
    ),
    ("127.0.0.1:7878", "localhost", "http.listen", 8, "\"localhost\" is not an address with a port"),
    (
        "127.0.0.1:7878",
        "0.0.0.0:7878",
        "http.listen",
        8,
        "no authentication; listen on 127.0.0.1, or set `allow_remote = true`",
    ),
    // Bad values: inbox.
    ("\"stock\"", "\"\"", "inbox[0].consumer", 10, "the consumer name is empty"),
    ("\"stock\"", "\"a b\"", "inbox[0].consumer", 10, "contains ' '"),
    ("[\"stock.updates\"]", "[]", "inbox[0].topics", 11, "the list is empty"),
    ("id =", "queue = \"q\"\nid =", "inbox[0].queue", 12, "topics, a queue or requests"),
    ("id =", "prefetch = 5\nid =", "inbox[0].prefetch", 12, "is for a queue of RabbitMQ"),
    ("id =", "key = \"header:k\"\nid =", "inbox[0].key", 12, "is for a queue of RabbitMQ"),
    ("relay = true", "relay = true\nexchange = \"e\"", "outbox.exchange", 21, "needs a broker"),
    ("[http]", "[rabbitmq]\n[http]", "rabbitmq.url", 7, "it is missing"),
    ("[http]", "[rabbitmq]\nurl = \"http://h\"\n[http]", "rabbitmq.url", 8, "not a URL of a RabbitMQ broker"),
    ("[\"stock.updates\"]", "[\"^a.*\"]", "inbox[0].topics[0]", 11, "patterns are not supported"),
    ("[\"stock.updates\"]", "[\"a\",\n\"a\"]", "inbox[0].topics[1]", 12, "listed twice"),
    ("header:event_id", "uuid", "inbox[0].id", 12, "allowed are key, header:NAME"),
    ("\"header:event_id\"", "[]", "inbox[0].id", 12, "the list is empty; list what is unique only together"),
    ("\"header:event_id\"", "[\"key\"]", "inbox[0].id[0]", 12, "one selector stands alone, without a list"),
    ("\"header:event_id\"", "[\"key\",\n\"key\"]", "inbox[0].id[1]", 13, "the part key is there twice"),
    ("\"header:event_id\"", "[\"key\",\n\"uuid\"]", "inbox[0].id[1]", 13, "allowed are key, header:NAME"),
    ("\"header:event_id\"", "[\"key\", [\"key\"]]", "inbox[0].id[1]", 12, "this is an array"),
    ("id =", "tenant = [\"key\", \"json:/x\"]\nid =", "inbox[0].tenant", 12, "this is an array"),
    ("id =", "tenant = \"json:x\"\nid =", "inbox[0].tenant", 12, "begins with `/`"),
    ("id =", "start = \"latestt\"\nid =", "inbox[0].start", 12, "did you mean \"latest\"?"),
    ("id =", "payload = \"xml\"\nid =", "inbox[0].payload", 12, "one of json, text, bytes"),
    ("id =", "on_failure = \"skip\"\nid =", "inbox[0].on_failure", 12, "one of park, park-key, halt"),
    ("id =", "stale = \"drop\"\nid =", "inbox[0].stale", 12, "one of apply, park"),
    ("id =", "retention_check = \"no\"\nid =", "inbox[0].retention_check", 12, "one of warn, refuse"),
    ("id =", "lanes = 65\nid =", "inbox[0].lanes", 12, "65 is out of range"),
    ("id =", "crash_limit = 0\nid =", "inbox[0].crash_limit", 12, "0 is out of range"),
    ("id =", "batch = { messages = 10001 }\nid =", "inbox[0].batch.messages", 12, "10001 is out of range"),
    ("id =", "batch = { bytes = \"4M\" }\nid =", "inbox[0].batch.bytes", 12, "\"4M\" is not a size"),
    ("id =", "batch = { bytes = \"1B\" }\nid =", "inbox[0].batch.bytes", 12, "out of range"),
    ("id =", "batch = { bytes = 1 }\nid =", "inbox[0].batch.bytes", 12, "out of range"),
    ("id =", "retry = { attempts = 0 }\nid =", "inbox[0].retry.attempts", 12, "0 is out of range"),
    (
        "id =",
        "retry = { backoff = \"5s..1s\" }\nid =",
        "inbox[0].retry.backoff",
        12,
        "not a range of durations",
    ),
    ("id =", "group = \"\"\nid =", "inbox[0].group", 12, "this is empty"),
    ("\"7d\"", "\"7 dayz\"", "inbox[0].retention", 13, "\"7 dayz\" is not a duration"),
    ("\"7d\"", "\"30s\"", "inbox[0].retention", 13, "30s is too short; write a duration from 1m"),
    // Handlers.
    ("SELECT :id", "SELECT :idd", "inbox[0].handler.each[0]", 16, "no parameter `:idd`; did you mean `:id`?"),
    ("SELECT :key", "SELECT 'x", "inbox[0].handler.each[1].sql", 17, "is not closed"),
    ("\"SELECT :id\"", "'''\nSELECT\n:foo'''", "inbox[0].handler.each[0]", 18, "no parameter `:foo`"),
    ("SELECT :id", "COMMIT", "inbox[0].handler.each[0]", 16, "inside oncebox's transaction; remove it"),
    ("SELECT :id", "SELECT 1; SELECT 2", "inbox[0].handler.each[0]", 16, "one statement per list entry"),
    ("SELECT :id", "", "inbox[0].handler.each[0]", 16, "the statement is empty"),
    ("rows = 1", "rows = -1", "inbox[0].handler.each[1].rows", 17, "out of range"),
    ("rows = 1", "rows = \"3..1\"", "inbox[0].handler.each[1].rows", 17, "both ends included"),
    (
        "each = [",
        "batch = [\"SELECT id FROM messages\"]\neach = [",
        "inbox[0].handler",
        14,
        "exclude each other",
    ),
    ("each = [", "each = []\nx = [", "inbox[0].handler.each", 15, "the list is empty"),
    (
        "each = [\n  \"SELECT :id\"",
        "batch = [\n  \"SELECT :id\"",
        "inbox[0].handler.batch[0]",
        16,
        "columns of the relation `messages`",
    ),
    ("each = [", "batch = [", "inbox[0].handler.batch[1].rows", 17, "`rows` is about one message"),
    // Services.
    ("[outbox]", "[purge]\nevery = \"0s\"\n[outbox]", "purge.every", 20, "too short"),
    ("relay = true", "relay = true\nkeep = \"forever\"", "outbox.keep", 21, "\"forever\" is not a duration"),
    (
        "relay = true",
        "relay = true\nlease = \"1s\"",
        "outbox.lease",
        21,
        "1s is too short; write a duration from 2s to 5m",
    ),
    (
        "relay = true",
        "relay = true\nlease = \"1h\"",
        "outbox.lease",
        21,
        "1h is too long; write a duration from 2s to 5m",
    ),
    ("relay = true", "relay = true\nmax_age = \"0s\"", "outbox.max_age", 21, "too short"),
    ("relay = true", "relay = true\nsource = \"a b\"", "outbox.source", 21, "not a CloudEvents source"),
    (
        "relay = true",
        "relay = true\nbatch = { messages = 0 }",
        "outbox.batch.messages",
        21,
        "0 is out of range",
    ),
    // Webhooks.
    (
        "relay = true",
        "relay = false",
        "webhook[0]",
        21,
        "from the relay; write `relay = true` under [outbox]",
    ),
    ("[[webhook]]", "[webhook]", "webhook", 21, "this is a table; write [[webhook]], with two brackets"),
    ("topics = [\"invoice.*\"]", "", "webhook[0].topics", 21, "it is missing"),
    ("[\"invoice.*\"]", "[]", "webhook[0].topics", 22, "the list is empty"),
    ("[\"invoice.*\"]", "[\"a b\"]", "webhook[0].topics[0]", 22, "neither a topic nor a pattern"),
    ("[\"invoice.*\"]", "[\"a\", \"a\"]", "webhook[0].topics[1]", 22, "takes these events already"),
    ("url = \"https://host/path\"", "", "webhook[0].url", 21, "it is missing"),
    (
        "https://host/path",
        "host/path",
        "webhook[0].url",
        23,
        "not a URL of a web server; write http://HOST/PATH",
    ),
    ("https://host/path", "ftp://host/path", "webhook[0].url", 23, "not a URL of a web server"),
    ("https://host/path", "https://", "webhook[0].url", 23, "not a URL of a web server"),
    ("url = \"https", "secret = \"\"\nurl = \"https", "webhook[0].secret", 23, "this is empty"),
    ("url = \"https", "timeout = \"1ms\"\nurl = \"https", "webhook[0].timeout", 23, "too short"),
    (
        "url = \"https",
        "retry = { attempts = 0 }\nurl = \"https",
        "webhook[0].retry.attempts",
        23,
        "0 is out of range",
    ),
    ("url = \"https", "at_once = 0\nurl = \"https", "webhook[0].at_once", 23, "0 is out of range"),
    (
        "url = \"https",
        "headers = { \"a b\" = \"a\" }\nurl = \"https",
        "webhook[0].headers.\"a b\"",
        23,
        "not a name of a header",
    ),
    (
        "url = \"https",
        "headers = { a = \"b\\n\" }\nurl = \"https",
        "webhook[0].headers.\"a\"",
        23,
        "not a value of a header",
    ),
    // Sweeps.
    ("[[sweep]]", "[sweep]", "sweep", 24, "this is a table; write [[sweep]], with two brackets"),
    ("name = \"due\"", "", "sweep[0].name", 24, "it is missing"),
    ("\"due\"", "\"a b\"", "sweep[0].name", 25, "not a name for a sweep"),
    ("every = \"5m\"", "", "sweep[0].every", 24, "it is missing"),
    ("\"5m\"", "\"10ms\"", "sweep[0].every", 26, "too short"),
    ("sql = \"SELECT id, customer FROM invoice\"", "", "sweep[0].sql", 24, "it is missing"),
    (
        "SELECT id, customer FROM invoice",
        "DELETE FROM invoice",
        "sweep[0].sql",
        27,
        "not a query; write a SELECT",
    ),
    ("FROM invoice", "FROM invoice WHERE id = :id", "sweep[0].sql", 27, "nobody binds `:id` in a sweep"),
    ("FROM invoice", "FROM invoice WHERE id = :ix", "sweep[0].sql", 27, "a sweep has no message"),
    ("FROM invoice", "FROM invoice WHERE id = $1", "sweep[0].sql", 27, "a sweep has no message"),
    ("FROM invoice", "FROM invoice; SELECT 1", "sweep[0].sql", 27, "keep one query"),
    ("SELECT id, customer FROM invoice", " ", "sweep[0].sql", 27, "the statement is empty; write a query"),
    ("key = \"id\"", "", "sweep[0].key", 24, "it is missing"),
    ("key = \"id\"", "key = \" \"", "sweep[0].key", 28, "this is empty"),
    ("key = \"id\"", "key = \"id\"\nwindow = \"0s\"", "sweep[0].window", 29, "too short"),
    ("key = \"id\"", "key = \"id\"\nlimit = 10001", "sweep[0].limit", 29, "10001 is out of range"),
    ("emit = { topic = \"invoice.mail\", key = \"customer\" }", "", "sweep[0].emit", 24, "it is missing"),
    ("topic = \"invoice.mail\", ", "", "sweep[0].emit.topic", 29, "it is missing"),
    ("invoice.mail", "invoice.*", "sweep[0].emit.topic", 29, "not a name of a topic"),
    // Variables.
    ("localhost/erp", "${HOST}/erp", "store.url", 2, "the environment variable HOST is not set"),
    ("\"plaintext\"", "\"${PW}\"", "kafka.properties.\"security.protocol\"", 6, "variable PW is not set"),
    ("SELECT :id", "SELECT '${X}'", "inbox[0].handler.each[0]", 16, "variable X is not set"),
    ("\"7d\"", "\"${SET}\"", "inbox[0].retention", 13, "\"${SET}\" is not a duration"),
    ("\"7d\"", "\"${a b}\"", "inbox[0].retention", 13, "write $${ for a literal ${"),
    // Syntax.
    ("retention = \"7d\"", "retention = 7d", "", 13, "not valid TOML"),
    ("retention = \"7d\"", "retention = \"7d", "", 13, "not valid TOML"),
    ("[outbox]", "[store]", "", 19, "not valid TOML"),
    ("retention = \"7d\"", "consumer = \"x\"", "", 13, "keep one of them"),
];

#[test]
fn every_bad_value_is_named_with_its_line() {
    let mut missed = String::new();
    for (good, bad, key, line, part) in CASES {
        assert!(BASE.contains(good), "the base has no {good}");
        let problems = problems(&BASE.replacen(good, bad, 1));
        let found = problems.iter().any(|problem| {
            let said = format!("{}; {}", problem.message, problem.fix);
            problem.key == *key && problem.line == *line && said.contains(part)
        });
        if !found {
            missed.push_str(&format!("{bad}\n  expected line {line}: {key}: {part}\n  but got {problems}\n"));
        }
    }
    assert!(missed.is_empty(), "{missed}");
}

#[test]
fn a_bad_value_is_one_problem() {
    let several = ["each = []\nx = [", "batch = [", "batch = [\n  \"SELECT :id\""];
    for (good, bad, ..) in CASES.iter().filter(|(_, bad, ..)| !several.contains(bad)) {
        let problems = problems(&BASE.replacen(good, bad, 1));
        let renamed = bad.contains("htttp") || bad.contains("keep = 1");
        assert!(problems.len() == 1 || renamed, "{bad}:\n{problems}");
    }
}

#[test]
fn the_base_itself_is_good() {
    assert!(parse(BASE).is_ok());
}

#[test]
fn an_empty_file_lacks_a_store() {
    assert_eq!(
        problems("").render("x.toml"),
        "x.toml:1: store: it is missing; add [store] with the `url` of the database"
    );
}

#[test]
fn six_problems_are_six_problems() {
    let text = r#"[store]
url = "oracle://erp:hunter2@db/erp"
[http]
listen = "0.0.0.0:80"
[[inbox]]
consumer = "stock"
topics = ["t"]
retension = "7d"
handler = { each = ["SELECT :foo"] }
"#;
    let problems = problems(text);
    let found: Vec<_> = problems.iter().map(|p| (p.line, p.key.as_str())).collect();
    assert_eq!(
        found,
        [
            (2, "store.url"),
            (4, "http.listen"),
            (5, "inbox[0].id"),
            (7, "inbox[0].topics"),
            (8, "inbox[0].retension"),
            (9, "inbox[0].handler.each[0]"),
        ]
    );
    let rendered = problems.render("my.toml");
    assert_eq!(rendered.lines().count(), 6);
    let no_brokers =
        "my.toml:7: inbox[0].topics: an inbox that reads topics needs brokers; add [kafka] with `brokers`";
    assert!(rendered.contains(no_brokers), "{rendered}");
    assert!(!rendered.contains("hunter2"));
}

#[test]
fn what_is_for_topics_is_refused_for_a_queue() {
    let queue = |broker: &str, keys: &str| {
        let inbox = format!(
            "[[inbox]]\nconsumer = \"stock\"\nqueue = \"q\"\n{keys}\nhandler = {{ each = [\"SELECT 1\"] }}"
        );
        problems(&format!("[store]\nurl = \"sqlite://x.db\"\n{broker}\n{inbox}"))
    };
    let rabbitmq = "[rabbitmq]\nurl = \"amqp://h\"";
    for (broker, keys, key, said) in [
        ("", "id = \"key\"", "inbox[0].queue", "needs a broker"),
        (rabbitmq, "id = \"key\"\nstart = \"latest\"", "inbox[0].start", "for topics of Kafka"),
        (rabbitmq, "id = \"key\"\ngroup = \"g\"", "inbox[0].group", "for topics of Kafka"),
        (
            rabbitmq,
            "id = \"key\"\nretention_check = \"warn\"",
            "inbox[0].retention_check",
            "for topics of Kafka",
        ),
        (rabbitmq, "id = \"coordinates\"", "inbox[0].id", "only a topic has coordinates"),
        (rabbitmq, "id = \"key\"\nprefetch = 5000", "inbox[0].prefetch", "1 to 2000"),
    ] {
        let problems = queue(broker, keys);
        let found: Vec<_> = problems.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(found, [key], "{problems}");
        assert!(problems.render("x").contains(said), "{problems}");
    }
}

#[test]
fn requests_that_others_can_send_are_verified_unless_said_openly() {
    let requests = |listen: &str, keys: &str| {
        let inbox =
            "[[inbox]]\nconsumer = \"o\"\nid = \"key\"\nhandler = { each = [\"SELECT 1\"] }\n[inbox.http]";
        let text = format!("[store]\nurl = \"sqlite://x.db\"\n{listen}\n{inbox}\npath = \"/in\"\n{keys}");
        Config::parse(&text, &Surroundings::default())
    };
    let relaying = "[http]\n[outbox]\nrelay = true";
    let remote = "[http]\nlisten = \"0.0.0.0:80\"\nallow_remote = true";
    assert!(requests("[http]", "").is_ok());
    assert!(requests(remote, "verify = \"none\"").is_ok());
    for (listen, keys, key, said) in [
        ("", "", "inbox[0].http", "needs an address"),
        (remote, "", "inbox[0].http.verify", "others can reach this address"),
        ("[http]", "verify = \"maybe\"", "inbox[0].http.verify", "none"),
        ("[http]", "verify = { scheme = \"github\" }", "inbox[0].http.verify.secrets", "it is missing"),
        ("[http]", "verify = { scheme = \"github\", secrets = [] }", "inbox[0].http.verify.secrets", "empty"),
        (
            "[http]",
            "verify = { scheme = \"hmac\", secrets = [\"s\"] }",
            "inbox[0].http.verify.header",
            "missing",
        ),
        (
            "[http]",
            "verify = { scheme = \"basic\", secrets = [\"s\"] }",
            "inbox[0].http.verify.user",
            "missing",
        ),
        ("[http]", "status = 203", "inbox[0].http.status", "no answer"),
        ("[http]", "status = 204\nbody = \"x\"", "inbox[0].http.status", "no body"),
        ("[http]", "max_body = \"1GiB\"", "inbox[0].http.max_body", "16MiB"),
        ("[http]", "mode = \"later\"", "inbox[0].http.mode", "apply"),
        ("[http]", "mode = \"accept\"", "inbox[0].http.mode", "relay = true"),
        (relaying, "mode = \"accept\"\nstatus = 200", "inbox[0].http.status", "202"),
        ("[http]", "handshake = {}", "inbox[0].http.handshake.origins", "missing"),
        ("[http]", "handshake = { origins = [] }", "inbox[0].http.handshake.origins", "empty"),
        (
            "[http]",
            "verify = { scheme = \"github\", secrets = {} }",
            "inbox[0].http.verify.secrets",
            "nobody",
        ),
        (
            "[http]",
            "verify = { scheme = \"github\", secrets = { a = [] } }",
            "inbox[0].http.verify.secrets.\"a\"",
            "empty",
        ),
    ] {
        let problems = requests(listen, keys).unwrap_err();
        let found: Vec<_> = problems.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(found, [key], "{problems}");
        assert!(problems.render("x").contains(said), "{problems}");
    }
}

#[test]
fn names_are_taken_once() {
    let second = |keys: &str| {
        let handler = "handler = { each = [\"SELECT 1\"] }";
        problems(&format!("{BASE}[[inbox]]\ntopics = [\"t\"]\nid = \"key\"\n{keys}\n{handler}\n"))
    };
    for (keys, key, part) in [
        ("consumer = \"stock\"", "inbox[1].consumer", "another inbox is called stock too"),
        ("consumer = \"b\"\ngroup = \"stock\"", "inbox[1].group", "this Kafka group"),
        // Also when this inbox has another problem.
        ("consumer = \"stock\"\nlanes = 0", "inbox[1].consumer", "another inbox is called stock too"),
    ] {
        let problems = second(keys);
        let problem = problems.iter().find(|problem| problem.key == key).unwrap();
        assert!(problem.line >= 30 && problem.message.contains(part), "{problems}");
    }
    let text = BASE.replace("topics =", "group = \"b\"\ntopics =");
    let text = format!(
        "{text}[[inbox]]\nconsumer = \"b\"\ntopics = [\"t\"]\nid = \"key\"\nhandler.each = [\"SELECT 1\"]\n"
    );
    assert!(
        problems(&text).to_string().contains("inbox[1].consumer: another inbox has this Kafka group too")
    );
}

#[test]
fn an_adopted_table_without_columns_for_them_has_one_consumer_and_no_tenants() {
    let second =
        "[[inbox]]\nconsumer = \"b\"\ntopics = [\"t\"]\nid = \"key\"\nhandler.each = [\"SELECT 1\"]\n";
    let adopting = |more: &str| {
        let adopt = format!("adopt = {{ table = \"shop.inbox\", message_id = \"id\"{more} }}\n[kafka]");
        let text = BASE.replace("[kafka]", &adopt).replace("retention =", "tenant = \"key\"\nretention =");
        format!("{text}{second}")
    };
    let problems = problems(&adopting(""));
    let found: Vec<_> = problems.iter().map(|p| (p.line, p.key.as_str())).collect();
    assert_eq!(found, [(14, "inbox[0].tenant"), (32, "inbox[1]")], "{problems}");
    let said = problems.to_string();
    assert!(said.contains("the adopted table shop.inbox has no column for consumers"), "{said}");
    assert!(said.contains("the adopted table shop.inbox has no column for tenants"), "{said}");
    assert!(parse(&adopting(", consumer = \"consumer\", tenant = \"tenant\"")).is_ok());
}

#[test]
fn sweeps_have_names_of_their_own_and_webhooks_topics_of_their_own() {
    let sweep = &BASE[BASE.find("[[sweep]]").unwrap()..];
    let problems = problems(&format!(
        "{BASE}{sweep}[[webhook]]\nurl = \"https://b\"\ntopics = [\"b\", \"invoice.*\"]\n"
    ));
    let found: Vec<_> = problems.iter().map(|p| (p.line, p.key.as_str())).collect();
    assert_eq!(found, [(31, "sweep[1].name"), (38, "webhook[1].topics[1]")], "{problems}");
    assert!(problems.to_string().contains("another sweep is called due too"), "{problems}");
}

#[test]
fn a_relay_needs_somewhere_to_publish_to() {
    let problems = problems("[store]\nurl = \"sqlite://x\"\n[outbox]\nrelay = true\n");
    assert_eq!(
        problems.render("x.toml"),
        "x.toml:4: outbox.relay: the relay has nothing to publish to; add [kafka] with `brokers`, an `exchange` of [rabbitmq], or a [[webhook]]"
    );
}

#[test]
fn a_single_bracket_is_explained() {
    let text = BASE.replace("[[inbox]]", "[inbox]");
    assert!(
        problems(&text).to_string().contains("inbox: this is a table; write [[inbox]], with two brackets")
    );
}

#[test]
fn what_a_dialect_refuses_has_its_line() {
    let text = BASE.replace("SELECT :id", "SELECT payload ? 'a'");
    assert!(parse(&text).is_ok());
    let text = text.replace("postgres://erp@localhost/erp", "sqlite://x");
    let text = text.replace("FROM invoice", "FROM invoice WHERE id = ?");
    let problems = problems(&text);
    let found: Vec<_> = problems.iter().map(|p| (p.line, p.key.as_str())).collect();
    assert_eq!(found, [(16, "inbox[0].handler.each[0]"), (27, "sweep[0].sql")], "{problems}");
    let said = problems.to_string();
    assert!(said.contains("`?` is a placeholder that nobody binds; use one of :id :key"), "{said}");
    assert!(said.contains("nobody binds; a sweep has no message"), "{said}");
}

#[test]
fn a_refused_property_with_a_wrong_value_is_two_problems() {
    let text = BASE.replace("\"security.protocol\" = \"plaintext\"", "\"group.id\" = \"${UNSET}\"");
    assert_eq!(problems(&text).len(), 2, "{}", problems(&text));
}

#[test]
fn the_value_of_a_refused_property_is_not_shown() {
    let text = BASE.replace("\"security.protocol\" = \"plaintext\"", "\"group.id\" = \"hunter2\"");
    let problems = problems(&text);
    assert!(!format!("{problems} {problems:?}").contains("hunter2"), "{problems}");
}
