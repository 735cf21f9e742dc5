//! Every page with data, without any, and with a database that is away.

use std::sync::Arc;

use oncebox_dashboard::{Dashboard, Payloads, Settings};

use crate::asked::Site;
use crate::fake::Fake;

const PAGES: [&str; 6] = ["/", "/find?id=order-9", "/dead", "/outbox", "/retention", "/health"];

#[tokio::test]
async fn the_overview_says_what_is_wrong_and_what_was_suppressed() {
    let page = Site::local(Fake::busy()).get("/").await;
    page.is(200).has("things that want a look");
    page.has("stock stands still or fails").has("mail is paused").has("2 dead letters of stock");
    page.has("1 event was given up").has("Duplicates suppressed").has("10 % of all");
    page.has("oldest 3 s").has("1,234,567").has("<svg");
}

#[tokio::test]
async fn a_consumer_shows_its_partitions_and_what_can_be_done() {
    let page = Site::local(Fake::busy()).get("/consumers/stock").await;
    page.is(200).has("orders/0").has("host-1").has("the log was truncated").has("holds the horizon");
    page.has("action=\"/do/pause\"").has("action=\"/do/move-position\"");
    let page = Site::local(Fake::busy()).get("/consumers/mail").await;
    page.is(200).has("Paused").has("the warehouse is being counted").has("action=\"/do/resume\"");
    page.has_not("move-position");
}

#[tokio::test]
async fn dead_letters_are_filtered_by_the_url_and_paged_by_number() {
    let site = Site::local(Fake::busy());
    site.get("/dead").await.is(200).has("order-5").has("order-9").has("no such article");
    site.get("/dead").await.has("What failed alike").has("/dead?group=stock-abc").has("name=\"rate\"");
    site.get("/dead?id=order-9&consumer=stock").await.is(200).has("order-9").has_not("order-5");
    site.get("/dead?id=nobody").await.is(200).has("No dead letter matches.");
    site.get("/dead?limit=x").await.is(422);
    let first = site.get("/dead?limit=1&consumer=stock").await;
    first.is(200).has("rel=\"next\"");
    let next = first.text.split("href=\"").find(|rest| rest.contains("rel=\"next\"")).unwrap();
    let next = next.split('"').next().unwrap().replace("&amp;", "&");
    assert!(next.contains("consumer=stock"), "{next}");
    let second = site.get(&next).await;
    second.is(200).has_not("rel=\"next\"");
    let shows = |page: &str, id: &str| page.contains(id);
    for id in ["order-5", "order-9"] {
        assert!(shows(&first.text, id) != shows(&second.text, id), "{id} is on one of the pages");
    }
}

/// A search that would take too long is given up, and says so.
#[tokio::test]
async fn a_search_that_did_not_look_at_all_letters_says_so_and_can_go_on() {
    let site = Site::local(Fake::busy().looked_until(4));
    let page = site.get("/dead?id=nobody").await;
    page.is(200)
        .has("None among the newest that were looked at.")
        .has("href=\"/dead?id=nobody&amp;before=4\"");
    site.get("/dead?id=order-9").await.is(200).has("order-9").has("before=4");
    let page = site.get("/outbox?state=held&topic=orders").await;
    page.is(200).has("None of the oldest events that were looked at is held.");
    page.has("href=\"/outbox?state=held&amp;topic=orders&amp;after=4\"");
    site.get("/api/v1/dead-letters?id=nobody").await.is(200).has("\"letters\":[],\"next\":4");
}

#[tokio::test]
async fn what_a_message_holds_is_masked_until_somebody_asks() {
    let site = Site::local(Fake::busy());
    for path in ["/dead", "/dead/9", "/api/v1/dead-letters", "/api/v1/dead-letters/9"] {
        site.get(path).await.is(200).has_not("secret").has_not("key-of-a-customer");
    }
    site.get("/dead/9").await.has("Show what it holds").has("traceparent");
    site.get("/dead/9?payload=show").await.is(200).has("DE00 secret").has("key-of-a-customer");
    site.get("/api/v1/dead-letters/9?payload=show").await.is(200).has("DE00 secret");
    let hiding = Site::with(Fake::busy(), Settings { payloads: Payloads::Hide, ..Settings::default() });
    hiding.get("/dead/9?payload=show").await.is(200).has_not("DE00 secret").has("not shown here");
    hiding.get("/api/v1/dead-letters/9?payload=show").await.is(200).has_not("DE00 secret");
}

#[tokio::test]
async fn the_outbox_shows_shards_and_what_was_given_up() {
    let site = Site::local(Fake::busy());
    site.get("/outbox").await.is(200).has("relay-a").has("410 Gone").has("action=\"/do/publish-now\"");
    site.get("/outbox?state=held").await.is(200).has("No event is held.");
    site.get("/outbox?state=lost").await.is(422);
}

#[tokio::test]
async fn retention_is_held_against_the_topics() {
    let page = Site::local(Fake::busy()).get("/retention").await;
    page.is(200).has("keeps messages for ever").has("7 d").has("action=\"/do/purge\"");
}

#[tokio::test]
async fn health_says_what_to_do() {
    let page = Site::local(Fake::busy()).get("/health").await;
    page.is(200).has("fsync is off: turn it on").has("inbox:stock").has("the log was truncated");
    page.has("cli:ana").has("applied 3").has("not ended");
}

#[tokio::test]
async fn where_nothing_has_happened_every_page_says_so() {
    let site = Site::local(Fake::empty());
    site.get("/").await.is(200).has("Nothing has happened yet").has("No consumer yet");
    site.get("/dead").await.is(200).has("every message was applied");
    site.get("/outbox").await.is(200).has("No event is parked.").has("No relay publishes");
    site.get("/retention").await.is(200).has("No consumer yet.");
    site.get("/health").await.is(200).has("This process only looks");
    for path in ["/consumers/nobody", "/dead/1", "/jobs/1", "/nothing"] {
        site.get(path).await.is(404).has("There is no such thing");
    }
    site.get("/dead/nonsense").await.is(400);
}

#[tokio::test]
async fn a_database_that_is_away_is_said_and_asked_again() {
    let site = Site::local(Fake::away());
    for path in PAGES {
        let page = site.get(path).await;
        page.is(503).has("The database does not answer").has("connection &lt;refused&gt;").has("data-live");
    }
    let none = Dashboard::new(Settings::default());
    let site = Site { dashboard: none, fake: Arc::new(Fake::empty()) };
    site.get("/").await.is(503).has("cannot be reached yet");
}

#[tokio::test]
async fn pages_are_whole_documents_with_labels_and_without_anything_inline() {
    let site = Site::local(Fake::busy());
    for path in PAGES.into_iter().chain(["/find", "/consumers/stock", "/dead/9", "/dead/9/edit", "/sign-in"])
    {
        let page = site.get(path).await;
        page.is(200).has("<!DOCTYPE html>").has("<html lang=\"en\">").has("<main");
        page.has_not("style=").has_not("<style").has_not("onclick").has_not("javascript:").has_not("://");
        assert_eq!(page.text.matches("<h1").count(), 1, "{path} has one heading");
        for script in page.text.split("<script").skip(1) {
            assert!(script.starts_with(" type=\"module\" src=\"/assets/live.js\"></script>"), "{path}");
        }
        let fields = page.text.replace("<textarea", "<input");
        let fields = fields.split("<input").skip(1).filter(|field| {
            let field = field.split('>').next().unwrap();
            !field.contains("type=\"hidden\"") && !field.contains("aria-label")
        });
        let labelled = page
            .text
            .split("<label")
            .skip(1)
            .map(|label| label.split("</label>").next().unwrap())
            .filter(|label| label.contains("<input") || label.contains("<textarea"));
        assert_eq!(fields.count(), labelled.count(), "{path}: every field has a label");
        assert_eq!(page.header("cache-control"), "no-store");
    }
    for (path, kind) in [
        ("/assets/dashboard.css", "text/css"),
        ("/assets/live.js", "text/javascript"),
        ("/assets/icon.svg", "image/svg+xml"),
    ] {
        assert!(site.get(path).await.is(200).header("content-type").starts_with(kind));
    }
}

#[tokio::test]
async fn an_action_leads_to_the_page_that_says_what_became_of_it() {
    let site = Site::local(Fake::busy());
    let answer = site.post("/do/replay-dead", &[], "numbers=5&numbers=9").await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/jobs/1"));
    site.get("/jobs/1").await.is(200).has("It is done").has("replay-dead");
    site.get("/health").await.has("/jobs/1");
    site.post("/do/replay-dead", &[], "").await.is(422).has("numbers");
    site.post("/do/unknown", &[], "").await.is(404);
    let done = site.fake.done.lock().unwrap();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].1, "local");
}
