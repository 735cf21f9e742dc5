//! The shares of the store's connections: each is really there, and what cannot be is refused.

use proptest::prelude::*;

use crate::{Config, Connections, Problems, Surroundings};

/// The pool of a store that is not told.
const DEFAULT: u32 = 10;

fn parse(
    url: &str,
    pool: Option<u32>,
    inboxes: &[Option<u32>],
    relay: Option<Option<u32>>,
) -> Result<Config, Problems> {
    let share =
        |wish: Option<u32>| wish.map(|wish| format!("max_connections = {wish}\n")).unwrap_or_default();
    let mut text = format!("[store]\nurl = \"{url}\"\n{}[kafka]\nbrokers = \"k\"\n", share(pool));
    for (nth, wish) in inboxes.iter().enumerate() {
        text.push_str(&format!(
            "[[inbox]]\nconsumer = \"c{nth}\"\ntopics = [\"t\"]\nid = \"key\"\n{}handler.each = [\"SELECT 1\"]\n",
            share(*wish)
        ));
    }
    if let Some(wish) = relay {
        text.push_str(&format!("[outbox]\nrelay = true\n{}", share(wish)));
    }
    Config::parse(&text, &Surroundings::default())
}

fn divided(pool: Option<u32>, inboxes: &[Option<u32>], relay: Option<Option<u32>>) -> (u32, Vec<u32>, u32) {
    let config = parse("postgres://erp@db/erp", pool, inboxes, relay).unwrap();
    let Connections { pool, inboxes, relay } = config.connections(DEFAULT).unwrap();
    (pool, inboxes, relay)
}

#[test]
fn what_nobody_has_asked_for_is_divided_evenly() {
    assert_eq!(divided(None, &[None], None), (10, vec![10], 0), "one alone has all");
    assert_eq!(divided(None, &[], Some(None)), (10, vec![], 10));
    assert_eq!(divided(None, &[None], Some(None)), (10, vec![5], 5));
    assert_eq!(divided(None, &[None, None], Some(None)), (10, vec![4, 3], 3));
    assert_eq!(divided(None, &[None, None, None], Some(None)), (10, vec![3, 3, 2], 2));
    assert_eq!(divided(Some(40), &[None, None], Some(None)), (40, vec![18, 17], 5), "a relay needs few");
    assert_eq!(divided(None, &[Some(6), None], Some(None)), (10, vec![6, 2], 2));
    assert_eq!(divided(None, &[None, None], Some(Some(6))), (10, vec![2, 2], 6));
    assert_eq!(divided(Some(20), &[Some(1), Some(2)], Some(Some(3))), (20, vec![1, 2], 3));
}

#[test]
fn a_pool_that_nobody_has_bounded_is_large_enough() {
    assert_eq!(divided(None, &[None; 8], Some(None)), (18, vec![2; 8], 2));
    assert_eq!(divided(None, &[Some(16), None], Some(None)), (20, vec![16, 2], 2));
}

proptest! {
    #[test]
    fn shares_are_never_more_than_the_pool_and_never_nothing(
        pool in prop::option::of(1_u32..60),
        inboxes in prop::collection::vec(prop::option::of(1_u32..20), 0..12),
        relay in prop::option::of(prop::option::of(2_u32..20)),
    ) {
        let least: u32 = inboxes.iter().map(|wish| wish.unwrap_or(1)).sum::<u32>()
            + relay.map_or(0, |wish| wish.unwrap_or(2));
        let parsed = parse("mysql://erp@db/erp", pool, &inboxes, relay);
        prop_assert_eq!(parsed.is_err(), pool.is_some_and(|pool| pool < least));
        if let Ok(config) = parsed {
            let shares = config.connections(DEFAULT).unwrap();
            prop_assert!(shares.inboxes.iter().sum::<u32>() + shares.relay <= shares.pool);
            prop_assert!(shares.inboxes.iter().all(|share| *share > 0));
            prop_assert!(relay.is_none() || shares.relay >= 2);
            prop_assert!(pool.is_none_or(|pool| pool == shares.pool));
        }
    }
}

#[test]
fn what_cannot_be_names_the_keys_and_their_lines() {
    let problems = parse("postgres://erp@db/erp", Some(8), &[Some(6), None], Some(None)).unwrap_err();
    assert_eq!(
        problems.render("x.toml"),
        "x.toml:3: store.max_connections: 8 connections are too few: the inboxes and the relay need 9 (what \
         inbox[0].max_connections in line 10 asks for included); write at least 9, or lower the shares"
    );
    let problems = parse("postgres://erp@db/erp", Some(2), &[None; 3], None).unwrap_err();
    assert!(problems.to_string().contains("the inboxes need 3; write at least 3"), "{problems}");
}

#[test]
fn a_file_has_nothing_to_divide() {
    let config = parse("sqlite://stock.db", None, &[None, None], Some(None)).unwrap();
    assert_eq!(config.connections(DEFAULT), None);
    let problems = parse("sqlite://stock.db", None, &[None, Some(2)], Some(Some(2))).unwrap_err();
    let found: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(found, ["inbox[1].max_connections", "outbox.max_connections"], "{problems}");
    assert!(problems.to_string().contains("one writer"), "{problems}");
}

#[test]
fn an_inbox_that_accepts_stores_on_one_of_its_own() {
    let text = "[store]\nurl = \"postgres://erp@db/erp\"\nmax_connections = 4\n[http]\n[[inbox]]\nconsumer = \"c\"\nid = \"key\"\n\
                http = { path = \"/in\", mode = \"accept\", verify = \"none\" }\nhandler.each = [\"SELECT 1\"]\n\
                [outbox]\nrelay = true\n";
    let config = Config::parse(text, &Surroundings::default()).unwrap();
    let shares = config.connections(DEFAULT).unwrap();
    assert_eq!((shares.inboxes.as_slice(), shares.relay), (&[1][..], 2));
    let problems = Config::parse(&text.replace("= 4", "= 3"), &Surroundings::default()).unwrap_err();
    assert!(problems.to_string().contains("need 4"), "{problems}");
}
