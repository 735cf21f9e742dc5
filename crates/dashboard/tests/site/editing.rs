//! Changing a dead letter, parking events, trying without doing.

use bytes::Bytes;
use oncebox_core::store::{EventState, LetterContent, LetterEdit};
use oncebox_dashboard::{Action, Edit, Payloads, Settings};

use crate::asked::{READER, Site};
use crate::fake::{Fake, NOW_MS};

/// A letter that somebody has changed.
fn edited() -> Fake {
    let mut fake = Fake::busy();
    let letter = fake.letters.last_mut().unwrap();
    let original = LetterContent::of(&letter.letter.record);
    letter.letter.record.payload = Some(Bytes::from("{\"iban\":\"DE01 mended\"}"));
    letter.edit = Some(LetterEdit { by: "cli:ana".to_owned(), at_ms: NOW_MS - 1_000, times: 3, original });
    fake
}

#[tokio::test]
async fn a_letter_is_shown_in_a_form_and_sent_back_as_it_was_seen() {
    let site = Site::local(edited());
    let page = site.get("/dead/9/edit").await;
    page.is(200).has("action=\"/do/edit-dead\"").has("DE01 mended").has("name=\"seen\" value=\"3\"");
    page.has("key-of-a-customer").has("traceparent=00-secret-value").has("Save and replay");
    let form = "number=9&seen=3&payload=%7B%7D%0D%0A&key=k&headers=a%3Db&replay=true";
    site.post("/do/edit-dead", &[], form).await.is(303);
    let done = site.fake.done.lock().unwrap();
    let wanted = Edit {
        number: 9,
        seen: 3,
        payload: Some(Some(Bytes::from("{}\n"))),
        key: Some(Bytes::from("k")),
        headers: Some(vec![("a".to_owned(), "b".to_owned())]),
        replay: true,
    };
    assert_eq!(done[0].0, Action::EditDead(wanted));
}

#[tokio::test]
async fn what_arrived_and_what_it_is_now_are_compared() {
    let site = Site::local(edited());
    let page = site.get("/dead/9?payload=show").await;
    page.is(200).has("cli:ana").has("3 times in all");
    page.has("<del>-   &quot;iban&quot;: &quot;DE00 secret&quot;")
        .has("<ins>+   &quot;iban&quot;: &quot;DE01 mended&quot;");
    site.get("/dead/9").await.is(200).has("cli:ana").has_not("DE00").has_not("DE01");
    site.get("/dead").await.has("edited");
    let json = site.get("/api/v1/dead-letters/9?payload=show").await.json();
    assert_eq!((&json["edits"], &json["edit"]["by"]), (&3.into(), &"cli:ana".into()));
    assert_eq!(json["edit"]["original"]["payload"]["text"], "{\"iban\":\"DE00 secret\"}");
}

#[tokio::test]
async fn what_is_no_plain_text_is_edited_in_base64() {
    let mut fake = Fake::busy();
    for payload in [&b"\xff\x00"[..], b"a\r\nb"] {
        fake.letters[1].letter.record.payload = Some(Bytes::from_static(payload));
        fake.letters[1].letter.record.key = Some(Bytes::from_static(b"\xfe"));
        fake.letters[1].letter.record.headers.push("raw", Some(Bytes::from_static(b"\xff")));
        let site = Site::local(fake);
        let page = site.get("/dead/9/edit").await;
        page.is(200).has("name=\"payload_base64\"").has_not("name=\"payload\"").has_not("name=\"key\"");
        page.has("stay as they are");
        fake = Fake::busy();
    }
    fake.letters[1].letter.record.payload = Some(Bytes::from(vec![b'x'; 2 * 1024 * 1024]));
    Site::local(fake).get("/dead/9/edit").await.is(422).has("oncebox dead edit 9");
}

#[tokio::test]
async fn who_may_not_act_or_not_see_changes_nothing() {
    let site = Site::signed_in(Fake::busy());
    let reader = format!("Bearer {READER}");
    let reads = [("authorization", reader.as_str())];
    site.send("GET", "/dead/9/edit", &reads, "").await.is(403).has("may read, not act").has_not("secret");
    site.send("GET", "/dead/9", &reads, "").await.is(200).has_not("/edit");
    let hiding = Site::with(Fake::busy(), Settings { payloads: Payloads::Hide, ..Settings::default() });
    hiding.get("/dead/9/edit").await.is(422).has("oncebox dead edit").has_not("secret");
    hiding.get("/dead/9").await.is(200).has_not("/dead/9/edit");
    let edit = r#"{"number":9,"seen":0,"payload":"x"}"#;
    hiding.post("/api/v1/actions/edit-dead", &[], edit).await.is(422).has("hide");
    assert!(hiding.fake.done.lock().unwrap().is_empty());
    hiding.get("/dead/77/edit").await.is(422);
    Site::local(Fake::busy()).get("/dead/77/edit").await.is(404);
}

#[tokio::test]
async fn a_replay_can_be_tried_before() {
    let site = Site::local(Fake::busy());
    site.get("/dead").await.has("Dry run").has("Keys held back").has("name=\"reason\"");
    let groups = site.get("/api/v1/dead-groups").await.json();
    assert_eq!(groups["groups"][0]["keys_held_back"], 1, "the consumer has park-key: {groups}");
    site.post("/do/replay-dead", &[], "group=stock-abc&limit=10&dry_run=true").await.is(303);
    let done = site.fake.done.lock().unwrap();
    assert!(done[0].0.is_dry_run(), "{done:?}");
}

#[tokio::test]
async fn letters_are_found_by_the_time_they_were_given_up() {
    let site = Site::local(Fake::busy());
    site.get("/dead?since=2025-12-31T00:00")
        .await
        .is(200)
        .has("order-9")
        .has("value=\"2025-12-31T00:00:00\"");
    site.get("/dead?since=2026-02-01T00:00:00Z").await.is(200).has("No dead letter matches.");
    site.get("/dead?until=never").await.is(422).has("until");
}

#[tokio::test]
async fn what_waits_can_be_parked_and_keys_are_shown_on_demand() {
    let mut fake = Fake::busy();
    fake.events[0].state = EventState::Held;
    let site = Site::local(fake);
    let page = site.get("/outbox?state=held").await;
    page.is(200).has("/do/park-events").has("/do/publish-now").has("Next try").has_not("/do/drop-events");
    page.has_not("key-of-a-customer").has("Show their keys");
    site.get("/outbox?state=held&payload=show").await.has("key-of-a-customer");
    site.post("/do/park-events", &[], "numbers=41").await.is(422).has("reason");
    site.post("/do/park-events", &[], "numbers=41&reason=wrong+address").await.is(303);
    let hiding = Settings { payloads: Payloads::Hide, ..Settings::default() };
    let hiding = Site::with(Fake::busy(), hiding).get("/outbox?payload=show").await;
    hiding.is(200).has("410 Gone").has_not("key-of-a-customer");
}
