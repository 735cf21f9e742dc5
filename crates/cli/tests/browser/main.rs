//! The dashboard in a real Chromium: what a user does, what the browser says of it, and pictures of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod accessible;
#[path = "../support/command.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod command;
mod driver;
mod edit;
mod find;
mod guide;
#[path = "../support/served.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod served;

use std::path::PathBuf;

use driver::Browser;
use served::{CONFIG, Server, execute, serve, sold, world};
use tempfile::TempDir;

/// Where pictures go: the directory of the run.
fn pictures() -> PathBuf {
    let folder = std::env::var("ONCEBOX_TEST_DIR").map_or_else(|_| std::env::temp_dir(), PathBuf::from);
    let folder = folder.join("dashboard-pictures");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn url(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.address)
}

/// Nothing inline was refused, nothing failed, nothing came from elsewhere.
#[track_caller]
fn is_clean(browser: &Browser, server: &Server) {
    let said = browser.console();
    assert!(said.is_empty(), "{said:#?}");
    let origin = url(server, "/");
    let foreign: Vec<String> = browser
        .asked_for()
        .into_iter()
        .filter(|asked| {
            !asked.starts_with(&origin) && !asked.starts_with("data:") && !asked.starts_with("chrome")
        })
        .collect();
    assert!(foreign.is_empty(), "{foreign:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_message_that_failed_to_its_effect() {
    let folder = world(CONFIG).await;
    let server = serve(&folder, &["run"]);
    server.eventually("the inbox is open", |s| s.deliver("order-1", "bolt") == 202);
    server.eventually("the letter is counted", |s| s.get("/").body.contains("1 dead letter of orders"));
    let browser = Browser::start(false);
    browser.size(1280, 900);
    browser.open(&url(&server, "/"));
    browser.eventually_shows("1 dead letter of orders");
    browser.click("ul.reasons a");
    browser.eventually_shows("order-1");
    browser.click("tbody th a");
    browser.eventually_shows("Show what it holds");
    assert!(!browser.text().contains("\"sku\""), "{}", browser.text());
    browser.click("a.button");
    browser.eventually_shows("\"sku\"");
    execute(&folder, "INSERT INTO stock VALUES ('bolt', 0)").await;
    browser.click("form[action='/do/replay-dead'] button");
    browser.eventually_shows("Replayed 1 dead letter");
    assert_eq!(sold(&folder, "bolt").await, 1);
    browser.open(&url(&server, "/"));
    browser.eventually_shows("All is well");
    is_clean(&browser, &server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_keeps_itself_up_to_date_and_leaves_the_cursor_alone() {
    let folder = world(CONFIG).await;
    execute(&folder, "INSERT INTO stock VALUES ('bolt', 0)").await;
    let server = serve(&folder, &["run"]);
    server.eventually("the dashboard has its database", |s| s.get("/").status == 200);
    let browser = Browser::start(false);
    browser.open(&url(&server, "/consumers/orders"));
    browser.fill("input[name='reason']", "counting");
    server.act("pause", "{\"consumer\": \"orders\", \"reason\": \"elsewhere\"}");
    browser.eventually_shows("elsewhere");
    assert_eq!(browser.run("return document.querySelector(\"input[name='reason']\").value"), "counting");
    browser.open(&url(&server, "/consumers/orders"));
    browser.click("form[action='/do/resume'] button");
    browser.eventually_shows("orders goes on");
    is_clean(&browser, &server);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_signs_in_and_sees_what_the_role_allows() {
    let auth = "[http.auth]\nread = [\"read-read-read-read\"]\nact = [\"act-act-act-act-act\"]\n";
    let folder = world(&CONFIG.replace("[[inbox]]", &format!("{auth}[[inbox]]"))).await;
    let server = serve(&folder, &["run"]);
    server.eventually("it answers", |s| s.get("/sign-in").status == 200);
    let browser = Browser::start(true);
    for (token, may_act) in [("read-read-read-read", false), ("act-act-act-act-act", true)] {
        browser.open(&url(&server, "/retention"));
        browser.eventually_shows("Sign in");
        browser.fill("input[name='token']", token);
        browser.click("main button");
        browser.eventually_shows("Sign out");
        browser.open(&url(&server, "/retention"));
        browser.eventually_shows("Retention");
        let has_button = browser.run("return document.querySelector(\"form[action='/do/purge']\") !== null");
        assert_eq!(has_button, may_act);
        browser.click(".who button");
        browser.eventually_shows("Token");
    }
    is_clean(&browser, &server);
}

/// Messages that were applied, copies of them, and some that failed: always the same.
async fn fill(folder: &TempDir, server: &Server) {
    execute(folder, "INSERT INTO stock VALUES ('nut', 0)").await;
    server.eventually("the inbox is open", |s| s.deliver("order-1", "nut") == 202);
    let article = |nth: u32| if nth.is_multiple_of(7) { "bolt" } else { "nut" };
    for nth in 2..60 {
        server.deliver(&format!("order-{nth}"), article(nth));
        server.deliver(&format!("order-{}", nth - 1), article(nth - 1));
    }
    server.eventually("all are settled", |s| {
        let consumer = &s.json("/api/v1/overview")["consumers"][0];
        consumer["duplicates_suppressed"] == 58 && consumer["dead_letters"] == 8
    });
}

/// Every page, with its name.
fn pages(server: &Server) -> Vec<(&'static str, String)> {
    let number = server.json("/api/v1/dead-letters")["letters"][0]["number"].as_i64().unwrap();
    let job = server.act("replay-dead", &format!("{{\"numbers\": [{number}]}}"))["number"].as_i64().unwrap();
    vec![
        ("overview", "/".to_owned()),
        ("consumer", "/consumers/orders".to_owned()),
        ("dead", "/dead".to_owned()),
        ("letter", format!("/dead/{number}?payload=show")),
        ("edit", format!("/dead/{number}/edit")),
        ("find", "/find?id=order-7".to_owned()),
        ("job", format!("/jobs/{job}")),
        ("outbox", "/outbox".to_owned()),
        ("retention", "/retention".to_owned()),
        ("health", "/health".to_owned()),
        ("nothing", "/nothing".to_owned()),
    ]
}

/// Pictures of every page, and what a reader with little room gets: nothing sticks out.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_narrow_and_wide_light_and_dark() {
    let folder = world(CONFIG).await;
    let server = serve(&folder, &["run"]);
    fill(&folder, &server).await;
    let pages = pages(&server);
    let folder = pictures();
    for dark in [false, true] {
        let browser = Browser::start(dark);
        for (name, path) in &pages {
            for width in [400, 1_600] {
                browser.size(width, 900);
                browser.open(&url(&server, path));
                let looks = if dark { "dark" } else { "light" };
                browser.picture(&folder.join(format!("{name}-{width}-{looks}.png")), width);
                let sticks_out = browser.run(
                    "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
                );
                assert_eq!(sticks_out, 0, "{path} at {width}");
            }
        }
        browser.console();
        browser.open(&url(&server, "/"));
        is_clean(&browser, &server);
    }
}
