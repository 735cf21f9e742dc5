//! What the webhook sink sends is taken here: two services with oncebox understand each other.

use bytes::Bytes;
use oncebox::Selector;
use oncebox_core::message::Headers;
use oncebox_core::outbox::{Deliver, OutgoingEvent};
use oncebox_core::store::StoredEvent;
use oncebox_http::verify::{Access, Secret, Verifier};
use oncebox_webhook::Webhook;
use uuid::Uuid;

use crate::fixture::{Database, PATH, Service, http};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEXT: &str = "the next secret, in plain text";

fn event(payload: Option<&'static str>) -> OutgoingEvent {
    let stored = StoredEvent {
        seq: 1,
        id: Uuid::now_v7(),
        topic: "orders".into(),
        key: Some(Bytes::from_static(b"bolt")),
        payload: payload.map(Bytes::from),
        headers: Headers::new(),
        created_at_ms: 1_700_000_000_000,
        deliver_at_ms: None,
        causation_id: None,
        attempts: 0,
    };
    OutgoingEvent::new(stored, "shop".into())
}

fn access(secrets: &[&str]) -> Access {
    let secrets = secrets.iter().map(|secret| Secret::new(*secret));
    Access::Verified(Verifier::standard_webhooks(secrets).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_webhook_sink_signs_is_verified_while_its_secret_changes() {
    for known in [&[OLD][..], &[NEXT], &["another", NEXT]] {
        let db = Database::new().await;
        let inbox = db.inbox().id(Selector::Header("webhook-id".into()));
        let service = Service::start(http().access(access(known)), inbox).await;
        let url = format!("http://{}{PATH}", service.address);
        let webhook = Webhook::to(&url).unwrap().secret(OLD).unwrap().secret(NEXT).unwrap();
        for payload in [Some("a payload with ünïcode"), Some(""), None] {
            webhook.deliver(&event(payload)).await.unwrap();
        }
        assert_eq!(db.effects().await.len(), 3);
        let stranger = Webhook::to(&url).unwrap().secret("a stranger's").unwrap();
        let refused = stranger.deliver(&event(None)).await.unwrap_err().to_string();
        assert!(refused.contains("401"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_sent_twice_is_applied_once_whichever_id_is_used() {
    for id in ["header:webhook-id", "header:oncebox-id", "header:idempotency-key", "cloudevents"] {
        let db = Database::new().await;
        let http = http().access(access(&[OLD])).key(Selector::Header("oncebox-key".into()));
        let service = Service::start(http, db.inbox().id(id.parse().unwrap())).await;
        let url = format!("http://{}{PATH}", service.address);
        let webhook = Webhook::to(&url).unwrap().secret(OLD).unwrap();
        let event = event(Some("{}"));
        webhook.deliver(&event).await.unwrap();
        webhook.deliver(&event).await.unwrap();
        let expected =
            if id == "cloudevents" { format!("shop {}", event.id()) } else { event.id().to_string() };
        assert_eq!(
            db.texts("SELECT id || ' ' || key FROM effect").await,
            [format!("{expected} bolt")],
            "{id}"
        );
    }
}
