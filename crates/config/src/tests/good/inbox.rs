//! Which messages an inbox wants, and what their id is.

use oncebox_core::inbox::Selector;

use super::{SMALL, parse};
use crate::*;

#[test]
fn an_id_of_several_parts_is_a_list() {
    let text = SMALL.replace("\"key\"", "[\"json:/eventCode\", \"json:/pspReference\"]");
    let parts = ["/eventCode", "/pspReference"].map(|pointer| Selector::Json(pointer.to_owned()));
    assert_eq!(parse(&text).inboxes[0].identity.id, Selector::all(parts).unwrap());
}

#[test]
fn a_filter_names_a_place_and_values() {
    let with = |filter: &str| {
        let text = SMALL.replace("id = \"key\"", &format!("id = \"key\"\nwhere = {filter}"));
        parse(&text).inboxes[0].filter.clone()
    };
    let filter = |selector, equals: &[&str]| {
        Some(FilterConfig { selector, equals: equals.iter().map(ToString::to_string).collect() })
    };
    assert_eq!(parse(SMALL).inboxes[0].filter, None);
    assert_eq!(
        with("{ header = \"type\", equals = [\"OrderShipped\", \"OrderCancelled\"] }"),
        filter(Selector::Header("type".to_owned()), &["OrderShipped", "OrderCancelled"])
    );
    assert_eq!(
        with("{ selector = \"json:/version\", equals = [1, \"2\"] }"),
        filter(Selector::Json("/version".to_owned()), &["1", "2"])
    );
    assert_eq!(with("{ selector = \"key\", equals = [\"a\"] }"), filter(Selector::Key, &["a"]));
}
