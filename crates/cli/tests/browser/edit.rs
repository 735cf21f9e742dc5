//! Dead letters in a browser: from what failed alike to the effect of a letter that was put right.

use super::driver::Browser;
use super::served::{CONFIG, Server, execute, serve, sold, world};
use super::{is_clean, url};

/// A server with a letter of an article that is not there, and one that is.
async fn with_a_letter() -> (tempfile::TempDir, Server) {
    let folder = world(CONFIG).await;
    execute(&folder, "INSERT INTO stock VALUES ('nut', 0)").await;
    let server = serve(&folder, &["run"]);
    server.eventually("the inbox is open", |s| s.deliver("order-1", "bolt") == 202);
    server.eventually("the letter is there", |s| s.get("/").body.contains("1 dead letter of orders"));
    (folder, server)
}

fn number(server: &Server) -> i64 {
    server.json("/api/v1/dead-letters")["letters"][0]["number"].as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_message_is_put_right_from_its_group_to_its_effect() {
    let (folder, server) = with_a_letter().await;
    let browser = Browser::start(false);
    browser.size(1280, 900);
    browser.open(&url(&server, "/dead"));
    browser.eventually_shows("What failed alike");
    browser.click("button[name='dry_run']");
    browser.eventually_shows("1 of 1 dead letter would run");
    browser.click("main p a");
    browser.eventually_shows("What failed alike");
    browser.click("td.why a");
    browser.eventually_shows("order-1");
    browser.click("tbody th a");
    browser.eventually_shows("Edit…");
    browser.click("a[href$='/edit']");
    browser.eventually_shows("Save and replay");
    browser.fill("textarea[name='payload']", "{\"sku\":\"nut\"}");
    browser.click("form[action='/do/edit-dead'] button.quiet");
    browser.eventually_shows("is changed; what arrived is kept");
    browser.click("main p a");
    browser.eventually_shows("+   \"sku\": \"nut\"");
    assert!(browser.text().contains("-   \"sku\": \"bolt\""), "{}", browser.text());
    assert_eq!(sold(&folder, "nut").await, 0, "a change alone applies nothing");
    browser.click("form[action='/do/replay-dead'] button:not([name])");
    browser.eventually_shows("Replayed 1 dead letter");
    assert_eq!(sold(&folder, "nut").await, 1);
    let audit = server.json("/api/v1/audit");
    let done: Vec<_> = (0..2).map(|nth| audit["actions"][nth]["action"].as_str().unwrap()).collect();
    assert_eq!(done, ["replay", "edit"], "{audit}");
    assert!(!audit.to_string().contains("nut"), "the audit holds no payload: {audit}");
    browser.open(&url(&server, "/dead"));
    browser.eventually_shows("None: every message was applied.");
    is_clean(&browser, &server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_somebody_else_has_changed_is_not_written_over() {
    let (folder, server) = with_a_letter().await;
    let number = number(&server);
    let browser = Browser::start(false);
    browser.open(&url(&server, &format!("/dead/{number}/edit")));
    browser.fill("textarea[name='payload']", "{\"sku\":\"nail\"}");
    let other = format!("{{\"number\":{number},\"seen\":0,\"payload\":\"{{\\\"sku\\\":\\\"nut\\\"}}\"}}");
    assert_eq!(server.act("edit-dead", &other)["state"], "done");
    browser.click("button[name='replay']");
    browser.eventually_shows("was changed by somebody else meanwhile");
    let letter = server.json(&format!("/api/v1/dead-letters/{number}?payload=show"));
    assert_eq!(letter["content"]["payload"]["text"], "{\"sku\":\"nut\"}", "{letter}");
    browser.open(&url(&server, &format!("/dead/{number}/edit")));
    browser.click("button[name='replay']");
    browser.eventually_shows("Replayed 1 dead letter");
    assert_eq!(sold(&folder, "nut").await, 1);
    is_clean(&browser, &server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_dropped_with_a_reason_and_found_by_time_before() {
    let (_folder, server) = with_a_letter().await;
    let number = number(&server);
    let browser = Browser::start(true);
    browser.open(&url(&server, "/dead?since=2100-01-01T00:00:00Z"));
    browser.eventually_shows("No dead letter matches.");
    browser.open(&url(&server, "/dead?since=2020-01-01"));
    browser.eventually_shows("order-1");
    let exported = server.get("/api/v1/dead-letters/export?since=2020-01-01&payload=show").body;
    assert!(exported.contains("bolt") && exported.contains("order-1"), "{exported}");
    browser.open(&url(&server, &format!("/dead/{number}")));
    browser.click("details summary");
    browser.fill("input[name='reason']", "a test order");
    browser.click("form[action='/do/drop-dead'] button");
    browser.eventually_shows("Dropped 1 dead letter");
    let audit = server.json("/api/v1/audit");
    assert!(audit["actions"][0]["parameters"].as_str().unwrap().contains("a test order"), "{audit}");
    is_clean(&browser, &server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_replay_says_how_far_it_is_and_can_be_stopped() {
    let (folder, server) = with_a_letter().await;
    for nth in 2..=60 {
        server.deliver(&format!("order-{nth}"), "bolt");
    }
    server
        .eventually("all letters are there", |s| s.json("/api/v1/dead-groups")["groups"][0]["letters"] == 60);
    execute(&folder, "INSERT INTO stock VALUES ('bolt', 0)").await;
    let browser = Browser::start(false);
    browser.open(&url(&server, "/dead"));
    browser.fill("input[name='rate']", "1");
    browser.click("form.tight button:not([name])");
    browser.eventually_shows("so far");
    browser.eventually_shows("Replayed ");
    browser.click("form[action$='/cancel'] button");
    browser.eventually_shows("It was stopped before the end.");
    let left = server.json("/api/v1/dead-groups")["groups"][0]["letters"].as_i64().unwrap();
    assert_eq!(sold(&folder, "bolt").await + left, 60, "each letter is applied or still there");
    assert!(left > 0 && left < 60, "{left}");
    is_clean(&browser, &server);
}
