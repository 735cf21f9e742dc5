//! Finding one message in a browser, and what waits in the outbox.

use super::driver::Browser;
use super::served::{CONFIG, execute, serve, world};
use super::{is_clean, pictures, url};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_found_from_every_page() {
    let folder = world(CONFIG).await;
    execute(&folder, "INSERT INTO stock VALUES ('nut', 0)").await;
    let server = serve(&folder, &["run"]);
    server.eventually("the inbox is open", |s| s.deliver("order-1", "nut") == 202);
    server.deliver("order-2", "bolt");
    server.eventually("both are settled", |s| {
        let json = |id: &str| s.json(&format!("/api/v1/find?id={id}"));
        json("order-1")["consumers"][0]["state"] == "settled"
            && json("order-2")["consumers"][0]["state"] == "given_up"
    });
    let browser = Browser::start(false);
    browser.open(&url(&server, "/"));
    for (id, said) in
        [("order-1", "Settled: order-1"), ("order-2", "Given up: order-2"), ("order-3", "Not seen")]
    {
        browser.open(&url(&server, "/outbox"));
        browser.fill("header input[name='id']", id);
        browser.click("header form.find button");
        browser.eventually_shows(said);
        browser.eventually_shows(&format!("oncebox find {id}"));
    }
    browser.open(&url(&server, "/find?id=order-2"));
    browser.click("td.why a");
    browser.eventually_shows("Show what it holds");
    browser.click("dl.facts a[href^='/find']");
    browser.eventually_shows("oncebox find --consumer orders order-2");
    browser.console();
    // What makes no sense is said on a page, too.
    browser.open(&url(&server, "/find?id=order-1&consumer=%00"));
    browser.eventually_shows("That was not done");
    browser.console();
    browser.open(&url(&server, "/find"));
    is_clean(&browser, &server);
}

/// Events 1 to 4: pending, pending, held, parked.
const EVENTS: &str = "
    INSERT INTO oncebox_outbox (topic, key, payload, causation_id) VALUES ('stock.changed', 'A-1', '{}', 'order-7');
    INSERT INTO oncebox_outbox (topic, key, payload) VALUES ('stock.changed', 'A-2', '{}');
    INSERT INTO oncebox_outbox (topic, key, payload, attempts, error, held_until)
        VALUES ('invoice.mail', 'A-1', 'x', 3, 'away', '2100-01-01T00:00:00.000Z');
    INSERT INTO oncebox_outbox (topic, payload, attempts, error, parked_at)
        VALUES ('invoice.mail', 'y', 1, 'refused', '2020-01-01T00:00:00.000Z')";

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_parked_published_and_found_by_its_cause() {
    let folder = world(CONFIG).await;
    execute(&folder, EVENTS).await;
    // Nobody publishes, so they stay where they are.
    let server = serve(&folder, &["dashboard"]);
    let browser = Browser::start(false);
    browser.size(1280, 900);
    browser.open(&url(&server, "/outbox?state=held&payload=show"));
    browser.eventually_shows("Next try");
    browser.eventually_shows("A-1");
    browser.click("input[value='3']");
    browser.click("details summary");
    browser.fill("input[name='reason']", "the customer is gone");
    browser.click("button[formaction='/do/park-events']");
    browser.eventually_shows("Parked 1 event");
    browser.open(&url(&server, "/outbox"));
    browser.eventually_shows("the customer is gone");
    browser.click("input[value='3']");
    browser.click("form[action='/do/publish-now'] .row button");
    browser.eventually_shows("1 event will be published");
    browser.open(&url(&server, "/outbox?state=pending"));
    browser.eventually_shows("invoice.mail");
    let audit = server.json("/api/v1/audit");
    let done: Vec<_> = (0..2).map(|nth| audit["actions"][nth]["action"].as_str().unwrap()).collect();
    assert_eq!(done, ["publish", "park event"], "{audit}");
    browser.open(&url(&server, "/find?id=order-7"));
    browser.eventually_shows("Only its events are known");
    browser.eventually_shows("stock.changed");
    is_clean(&browser, &server);
}

/// Pictures of the new pages, with data, empty and with errors.
#[tokio::test(flavor = "multi_thread")]
async fn find_and_edit_fit_narrow_and_wide_light_and_dark() {
    let folder = world(CONFIG).await;
    execute(&folder, "INSERT INTO stock VALUES ('nut', 0)").await;
    execute(&folder, EVENTS).await;
    let server = serve(&folder, &["run"]);
    let long = format!("order-{}", "7".repeat(90));
    server.eventually("the inbox is open", |s| s.deliver(&long, "bolt") == 202);
    server.deliver("order-1", "nut");
    server.eventually("the letter is there", |s| s.get("/").body.contains("1 dead letter of orders"));
    let number = server.json("/api/v1/dead-letters")["letters"][0]["number"].as_i64().unwrap();
    let edit = format!(
        "{{\"number\":{number},\"seen\":0,\"payload\":\"{{\\\"sku\\\":\\\"nail\\\"}}\",\"headers\":[\"a=b\"]}}"
    );
    assert_eq!(server.act("edit-dead", &edit)["state"], "done");
    let pages = [
        ("find-empty", "/find".to_owned()),
        ("find-settled", "/find?id=order-1".to_owned()),
        ("find-given-up", format!("/find?id={long}")),
        ("find-events", "/find?id=order-7".to_owned()),
        ("find-not-seen", "/find?id=order-99".to_owned()),
        ("find-wrong", "/find?id=a&consumer=%00".to_owned()),
        ("edit", format!("/dead/{number}/edit")),
        ("edit-missing", "/dead/99999/edit".to_owned()),
        ("letter-edited", format!("/dead/{number}?payload=show")),
        ("dead-groups", "/dead".to_owned()),
        ("outbox-held", "/outbox?state=held&payload=show".to_owned()),
        ("outbox-pending", "/outbox?state=pending".to_owned()),
    ];
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
    }
}
