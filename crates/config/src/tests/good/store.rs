//! `[store]` and `[store.adopt]`.

use oncebox_core::inbox::Selector;
use oncebox_core::store::Adopt;

use super::{SMALL, parse, parse_with};
use crate::*;

#[test]
fn the_kind_of_the_store_is_in_its_url() {
    for (url, kind) in [
        ("postgresql://erp@db/erp", StoreKind::Postgres),
        ("mysql://erp:pw@db:3307/erp?ssl-mode=REQUIRED", StoreKind::Mysql),
        ("mariadb://erp@db/erp", StoreKind::Mysql),
        ("sqlite://erp.db?mode=rwc", StoreKind::Sqlite),
    ] {
        let config = parse(&SMALL.replace("sqlite://stock.db", url));
        assert_eq!((config.store.kind, config.store.url.expose()), (kind, url));
    }
    // Said for any store, as long as it asks for nothing.
    let text = SMALL.replace("sqlite://stock.db\"", "mysql://db/erp\"\npartition_receipts = \"none\"");
    assert_eq!(parse(&text).store.partition_receipts, PartitionReceipts::None);
}

#[test]
fn a_url_may_be_given_in_parts() {
    let env = |_: &str| Some("p@ss/w?rd#%41:é".to_owned());
    let url = "url = \"sqlite://stock.db\"";
    assert!(SMALL.contains(url));
    for (parts, expected) in [
        ("kind = \"postgres\"\nhost = \"db\"", "postgres://db/"),
        (
            "kind = \"postgres\"\nhost = \"::1\"\nport = 5433\nuser = \"e/rp\"\npassword = \"${PW}\"\ndatabase = \"erp\"",
            "postgres://e%2Frp:p%40ss%2Fw%3Frd%23%2541%3A%C3%A9@[::1]:5433/erp",
        ),
        (
            "kind = \"mariadb\"\nhost = \"db.internal\"\nuser = \"erp\"\ndatabase = \"e rp\"",
            "mysql://erp@db.internal/e%20rp",
        ),
        (
            "kind = \"mysql\"\nhost = \"db\"\ndatabase = \"erp\"\nparameters = { ssl-mode = \"REQUIRED\" }",
            "mysql://db/erp?ssl-mode=REQUIRED",
        ),
    ] {
        let config = parse_with(&SMALL.replace(url, parts), &env).unwrap_or_else(|e| panic!("{parts}: {e}"));
        assert_eq!(config.store.url.expose(), expected, "{parts}");
        assert!(!format!("{config:?}").contains("p%40ss"), "{config:?}");
    }
}

#[test]
fn every_key_of_an_adopted_table() {
    let adopt = "adopt = { table = \"shop.inbox\", message_id = \"event_id\", processed_at = \"at\", consumer = \"who\", \
         tenant = \"shop\", set = { kind = \"header:type\", number = \"json:/n\" } }\n[kafka]";
    let adopt = parse(&SMALL.replace("[kafka]", adopt)).store.adopt.unwrap();
    let mut expected = Adopt::table("shop.inbox", "event_id").unwrap();
    for (map, column) in [
        (Adopt::processed_at as fn(Adopt, &str) -> _, "at"),
        (Adopt::consumer, "who"),
        (Adopt::tenant, "shop"),
    ] {
        expected = map(expected, column).unwrap();
    }
    expected = expected.set("kind", Selector::Header("type".to_owned())).unwrap();
    assert_eq!(adopt, expected.set("number", Selector::Json("/n".to_owned())).unwrap());
    assert_eq!(parse(SMALL).store.adopt, None);
}
