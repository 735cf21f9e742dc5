//! A store that does not speak SQL: operations go to it as JSON, and what it refuses comes back to its line.

use oncebox_sql::PayloadKind;

use crate::*;

const BASE: &str = r#"[store]
url = "mongodb://a,b:27018/erp?replicaSet=rs"
event_type = "header:type"
[kafka]
brokers = "k"
[[inbox]]
consumer = "stock"
topics = ["t"]
id = "key"
payload = "text"
[inbox.handler]
each = [
  { update = "stock", filter = { _id = ":key" }, with = [
    { "$set" = { z = 1.0, a = -1, "$b.c" = true } },
  ], rows = 1 },
  { insert = "${COLLECTION}", document = { text = "$${x} \"q\"" } },
]
[[sweep]]
name = "due"
every = "5m"
aggregate = "invoice"
pipeline = [
  { "$match" = { due = { "$lt" = 3 } } },
]
key = "_id"
emit = { topic = "invoice.mail" }
"#;

fn check(_: StoreKind, place: OperationUse, json: &str) -> Vec<OperationProblem> {
    let problem = |path: &[&str]| OperationProblem {
        path: path.iter().map(|step| (*step).to_owned()).collect(),
        message: format!("{place:?}"),
        fix: json.to_owned(),
    };
    match place {
        OperationUse::Sweep if json.contains("$mtach") => vec![problem(&["pipeline", "0", "$mtach"])],
        OperationUse::Each(_) | OperationUse::Batch(_) if json.contains("wiht") => {
            vec![
                problem(&["wiht"]),
                problem(&["with"]),
                problem(&["filter", "_id"]),
                problem(&["wiht", "0", "$set", "$b.c"]),
            ]
        }
        _ => Vec::new(),
    }
}

fn parse(text: &str) -> Result<Config, Problems> {
    let env = |name: &str| (name == "COLLECTION").then(|| "ledger".to_owned());
    Config::parse(text, &Surroundings { env: &env, check_operation: &check, ..Surroundings::default() })
}

fn found(text: &str) -> Vec<(usize, String)> {
    parse(text).unwrap_err().iter().map(|problem| (problem.line, problem.key.clone())).collect()
}

#[test]
fn operations_are_json_in_the_order_of_the_file() {
    let config = parse(BASE).unwrap();
    assert_eq!(config.store.kind, StoreKind::Mongodb);
    assert_eq!(config.store.event_type, "header:type".parse().ok());
    assert_eq!(config.inboxes[0].payload, PayloadKind::Text);
    let adopt = "[store.adopt]\ntable = \"inbox_event\"\nmessage_id = \"_id\"\nprocessed_at = \"receivedAt\"\nset = { eventType = \"header:type\" }\n[kafka]";
    let adopted =
        parse(&BASE.replace("event_type = \"header:type\"\n", "").replace("[kafka]", adopt)).unwrap();
    assert_eq!(adopted.store.adopt.map(|adopt| adopt.columns().count()), Some(3));
    let HandlerConfig::Operations(Operations::Each(each)) = &config.inboxes[0].handler else {
        unreachable!()
    };
    assert_eq!(
        *each,
        [
            r#"{"update":"stock","filter":{"_id":":key"},"with":[{"$set":{"z":1.0,"a":-1,"$b.c":true}}],"rows":1}"#,
            r#"{"insert":"ledger","document":{"text":"${x} \"q\""}}"#,
        ]
    );
    assert_eq!(
        config.sweeps[0].sweep.query,
        r#"{"aggregate":"invoice","pipeline":[{"$match":{"due":{"$lt":3}}}]}"#
    );
    let batch = parse(&BASE.replace("each = [", "batch = [")).unwrap();
    assert!(
        matches!(&batch.inboxes[0].handler, HandlerConfig::Operations(Operations::Batch(list)) if list.len() == 2)
    );
}

#[test]
fn what_the_store_refuses_is_at_its_line() {
    let each = "inbox[0].handler.each[0]";
    assert_eq!(
        found(&BASE.replace("with = [", "wiht = [").replace("$match", "$mtach")),
        [
            (13, format!("{each}.wiht")),
            (13, format!("{each}.with")),
            (13, format!("{each}.filter._id")),
            (14, format!("{each}.wiht[0].\"$set\".\"$b.c\"")),
            (23, "sweep[0].pipeline[0].\"$mtach\"".to_owned()),
        ]
    );
}

#[test]
fn what_is_no_operation_is_refused() {
    for (good, wrong, line, key) in [
        (
            "{ insert = \"${COLLECTION}\", document = { text = \"$${x} \\\"q\\\"\" } }",
            "\"SELECT 1\"",
            16,
            "inbox[0].handler.each[1]",
        ),
        ("{ insert", "{ sql = \"SELECT 1\", insert", 16, "inbox[0].handler.each[1]"),
        ("COLLECTION", "NOPE", 16, "inbox[0].handler.each[1].insert"),
        ("z = 1.0", "z = nan", 14, "inbox[0].handler.each[0].with[0].\"$set\".z"),
        ("aggregate = \"invoice\"", "", 18, "sweep[0].aggregate"),
        ("aggregate = \"invoice\"", "sql = \"SELECT 1\"\naggregate = \"invoice\"", 21, "sweep[0].sql"),
        (
            "[kafka]",
            "[store.adopt]\ntable = \"inbox_event\"\nmessage_id = \"_id\"\n[kafka]",
            3,
            "store.event_type",
        ),
        ("event_type", "partition_receipts = \"day\"\nevent_type", 3, "store.partition_receipts"),
        ("event_type = \"header:type\"", "event_type = \"type\"", 3, "store.event_type"),
    ] {
        assert!(BASE.contains(good), "{good}");
        assert!(
            found(&BASE.replace(good, wrong)).contains(&(line, key.to_owned())),
            "{wrong}: {:?}",
            found(&BASE.replace(good, wrong))
        );
    }
    assert_eq!(
        found(&BASE.replace("each = [", "each = []\nx = [")),
        [(12, "inbox[0].handler.each".to_owned()), (13, "inbox[0].handler.x".to_owned())]
    );
}
