//! Dead letters as JSON lines.

use oncebox_dashboard::{Payloads, Settings};
use serde_json::Value;

use crate::asked::{Answer, Site};
use crate::fake::{Fake, letter};

fn lines(answer: &Answer) -> Vec<Value> {
    answer.is(200).text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn many() -> Fake {
    let mut fake = Fake::busy();
    fake.letters = (1..=250).map(|number| letter(number, "stock", &format!("order-{number}"))).collect();
    fake
}

#[tokio::test]
async fn all_letters_that_match_are_written_page_by_page() {
    let site = Site::local(many());
    let answer = site.get("/api/v1/dead-letters/export?consumer=stock").await;
    assert!(answer.header("content-disposition").contains("dead-letters.jsonl"));
    let found = lines(&answer);
    let numbers: Vec<i64> = found.iter().map(|line| line["number"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=250).rev().collect::<Vec<_>>());
    assert!(lines(&site.get("/api/v1/dead-letters/export?consumer=nobody").await).is_empty());
    site.get("/dead?consumer=stock").await.has("/api/v1/dead-letters/export?consumer=stock");
}

#[tokio::test]
async fn an_export_that_is_cut_says_so_and_goes_on_from_there() {
    let site = Site::local(many());
    let first = lines(&site.get("/api/v1/dead-letters/export?limit=120").await);
    assert_eq!(first.len(), 121);
    let next = first[120]["next"].as_i64().unwrap();
    assert!(first[120]["cut"].as_str().unwrap().contains("more"), "{}", first[120]);
    let second = lines(&site.get(&format!("/api/v1/dead-letters/export?before={next}")).await);
    assert_eq!((second[0]["number"].as_i64(), second.len()), (Some(130), 130));
    let away = lines(&Site::local(Fake::away()).get("/api/v1/dead-letters/export").await);
    assert!(away[0]["cut"].as_str().unwrap().contains("refused"), "{away:?}");
}

#[tokio::test]
async fn what_letters_hold_is_exported_on_demand_only_and_never_if_it_is_hidden() {
    let site = Site::local(Fake::busy());
    site.get("/api/v1/dead-letters/export").await.is(200).has("order-9").has_not("secret");
    site.get("/api/v1/dead-letters/export?payload=show").await.is(200).has("DE00 secret");
    site.get("/dead").await.has("payload=show");
    let hiding = Site::with(Fake::busy(), Settings { payloads: Payloads::Hide, ..Settings::default() });
    hiding.get("/api/v1/dead-letters/export?payload=show").await.is(200).has_not("secret");
    hiding.get("/dead").await.is(200).has_not("payload=show");
}
