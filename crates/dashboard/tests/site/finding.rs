//! Looking for one message.

use oncebox_dashboard::Settings;

use crate::asked::Site;
use crate::fake::Fake;

#[tokio::test]
async fn a_message_is_found_with_its_letter_its_events_its_trace_and_the_command() {
    let mut fake = Fake::busy();
    fake.events[0].event.causation_id = Some("order-9".to_owned());
    let site = Site::local(fake);
    let page = site.get("/find?id=order-9").await;
    page.is(200).has("Given up").has("href=\"/dead/9\"").has("no such article").has("acme");
    page.has("invoice.mail").has("parked").has("410 Gone");
    page.has("4bf92f3577b34da6a3ce929d0e0e4736").has("oncebox find order-9");
    page.has("found by its tenant only").has("Only the newest events");
    page.has_not("secret").has_not("key-of-a-customer");
    let page = site.get("/find?id=order-9&tenant=acme&consumer=stock").await;
    page.has("oncebox find --consumer stock --tenant acme order-9").has_not("found by its tenant only");
    let json = site.get("/api/v1/find?id=order-9").await.is(200).json();
    assert_eq!((&json["seen"], &json["consumers"][0]["state"]), (&true.into(), &"given_up".into()));
    assert_eq!(json["consumers"][0]["dead_letters"][0]["number"], 9);
    assert_eq!(json["events"][0]["state"], "parked");
}

#[tokio::test]
async fn not_seen_is_an_answer_too() {
    let site = Site::local(Fake::busy());
    let page = site.get("/find?id=order-77").await;
    page.is(200).has("Not seen").has("No consumer has a receipt").has("oncebox find order-77");
    assert_eq!(site.get("/api/v1/find?id=order-77").await.is(200).json()["seen"], false);
    site.get("/find").await.is(200).has("Type the id of a message").has_not("Not seen");
    site.get("/find?id=order-1&consumer=%00").await.is(422);
}

#[tokio::test]
async fn a_trace_is_a_link_where_the_configuration_says_whereto() {
    let settings = Settings {
        trace_url: Some("https://jaeger.example/trace/{trace}".to_owned()),
        ..Settings::default()
    };
    let page = Site::with(Fake::busy(), settings).get("/find?id=order-9").await;
    page.is(200).has("href=\"https://jaeger.example/trace/4bf92f3577b34da6a3ce929d0e0e4736\"");
}

#[tokio::test]
async fn every_page_has_a_box_to_find_a_message_with() {
    let site = Site::local(Fake::busy());
    for path in ["/", "/dead", "/dead/9", "/outbox"] {
        site.get(path).await.is(200).has("action=\"/find\"");
    }
    site.get("/dead/9").await.has("/find?id=order-9&amp;consumer=stock&amp;tenant=acme");
    site.get("/outbox").await.has("/find?id=order-1");
}
