//! Ids, errors, payloads and names that want to be markup.

use bytes::Bytes;

use crate::asked::Site;
use crate::fake::{Fake, letter};

const SCRIPT: &str = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>\u{202e}\u{1b}[31m";

fn hostile() -> Fake {
    let mut fake = Fake::busy();
    let mut bad = letter(13, "stock", SCRIPT);
    bad.letter.error = format!("{SCRIPT}\n{SCRIPT}");
    bad.letter.record.topic = SCRIPT.into();
    bad.letter.record.key = Some(Bytes::from(SCRIPT));
    bad.letter.record.payload = Some(Bytes::from(SCRIPT));
    bad.letter.record.headers.push(SCRIPT, Some(Bytes::from(SCRIPT)));
    fake.letters.push(bad);
    fake.look.status.positions[0].topic = SCRIPT.to_owned();
    fake.look.status.positions[2].consumer = SCRIPT.to_owned();
    fake.look.paused[0].reason = Some(SCRIPT.to_owned());
    fake.look.notes = vec![SCRIPT.to_owned()];
    fake.events[0].error = Some(SCRIPT.to_owned());
    fake.events[0].event.topic = SCRIPT.into();
    fake
}

#[tokio::test]
async fn what_comes_from_outside_is_text_on_every_page() {
    let site = Site::local(hostile());
    let in_url =
        "%3Cscript%3Ealert%28%27x%27%29%3C%2Fscript%3E%22%27%3E%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E";
    let pages = [
        "/".to_owned(),
        "/dead".to_owned(),
        "/dead/13".to_owned(),
        "/dead/13?payload=show".to_owned(),
        "/dead/13/edit".to_owned(),
        "/outbox".to_owned(),
        "/outbox?payload=show".to_owned(),
        format!("/find?id={in_url}"),
        "/retention".to_owned(),
        "/health".to_owned(),
        "/consumers/stock".to_owned(),
        "/consumers/mail".to_owned(),
        format!("/dead?id={in_url}&consumer={in_url}"),
        format!("/outbox?topic={in_url}"),
        format!("/consumers/{in_url}"),
        format!("/{in_url}"),
    ];
    for path in pages {
        let page = site.get(&path).await;
        page.has_not("<script>alert")
            .has_not("<img src=x")
            .has_not("'><img")
            .has_not("\u{202e}")
            .has_not("\u{1b}");
    }
    site.get("/dead/13?payload=show").await.is(200).has("&lt;script&gt;alert");
}

#[tokio::test]
async fn a_consumer_with_an_odd_name_has_a_link_that_works() {
    let site = Site::local(hostile());
    let page = site.get("/").await;
    let link = page.text.split("href=\"").find(|rest| rest.starts_with("/consumers/%3C")).unwrap();
    let link = link.split('"').next().unwrap();
    site.get(link).await.is(200).has("&lt;script&gt;");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_shown_and_not_lost() {
    let mut fake = Fake::busy();
    fake.letters[0].letter.record.payload = Some(Bytes::from_static(&[0, 255, 1]));
    let site = Site::local(fake);
    site.get("/dead/5?payload=show").await.is(200).has("AP8B");
    let letter = site.get("/api/v1/dead-letters/5?payload=show").await.json();
    assert_eq!(letter["content"]["payload"]["base64"], "AP8B");
}
