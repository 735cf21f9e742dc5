//! `[store]` and `[store.adopt]`.

use super::{BASE, Case, parse, problems};

pub(super) const CASES: &[Case] = &[
    // Unknown keys.
    ("url = ", "ulr = 1\nurl = ", "store.ulr", 2, "did you mean `url`"),
    // Wrong types.
    ("\"postgres://erp@localhost/erp\"", "5", "store.url", 2, "this is an integer; write a string"),
    // Missing.
    ("url = \"postgres://erp@localhost/erp\"", "", "store.url", 1, "no database"),
    // Bad values.
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
    // A URL in parts.
    (
        "erp@localhost/erp\"",
        "erp@localhost/erp\"\nuser = \"erp\"",
        "store.user",
        3,
        "`url` says this already",
    ),
    (
        "url = \"postgres://erp@localhost/erp\"",
        "host = \"db\"",
        "store.kind",
        1,
        "postgres, mysql, mariadb or mongodb",
    ),
    ("url = \"postgres://erp@localhost/erp\"", "kind = \"postgres\"", "store.host", 1, "it is missing"),
    (
        "url = \"postgres://erp@localhost/erp\"",
        "kind = \"oracle\"\nhost = \"db\"",
        "store.kind",
        2,
        "one of postgres",
    ),
    (
        "url = \"postgres://erp@localhost/erp\"",
        "kind = \"mysql\"\nhost = \"db\"",
        "store.database",
        1,
        "it is missing",
    ),
    (
        "url = \"postgres://erp@localhost/erp\"",
        "kind = \"postgres\"\nhost = \"a,b\"",
        "store.host",
        3,
        "not the name of one host",
    ),
    (
        "url = \"postgres://erp@localhost/erp\"",
        "kind = \"postgres\"\nhost = \"db\"\nport = 0",
        "store.port",
        4,
        "out of range",
    ),
    (
        "url = \"postgres://erp@localhost/erp\"",
        "kind = \"postgres\"\nhost = \"db\"\npassword = \"x\"",
        "store.password",
        4,
        "no user",
    ),
    // Variables.
    ("erp@localhost/erp", "erp@${SLASH}/erp", "store.url", 2, "give the host alone, or the whole URL"),
    ("localhost/erp", "${HOST}/erp", "store.url", 2, "the environment variable HOST is not set"),
];

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
