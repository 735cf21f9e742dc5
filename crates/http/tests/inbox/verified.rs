//! Requests that are not verified change nothing, whatever else is wrong with them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use oncebox::Selector;
use oncebox_core::secret::Secret;
use oncebox_http::verify::{Access, Verifier};
use oncebox_http::{HttpInbox, WallClock};

use crate::client::{Raw, post};
use crate::fixture::{Database, PATH, Service, http};

fn at(seconds: u64) -> WallClock {
    WallClock::from_fn(move || SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[tokio::test(flavor = "multi_thread")]
async fn not_verified_is_401_before_anything_else() {
    let db = Database::new().await;
    let bearer = Verifier::bearer([Secret::new("canary-token")]).unwrap();
    let service = Service::start(http().access(Access::Verified(bearer)), db.inbox()).await;
    // No id, and no token either.
    let without = post(PATH, "{}").to(service.address).await;
    assert_eq!(without.problem(401), "the header `authorization` is missing");
    assert_eq!(without.header("www-authenticate"), Some(r#"Bearer realm="oncebox""#));
    // Too large, and the wrong token: nothing of it is read.
    let mut large = Raw::open(service.address).await;
    large.say(format!("POST {PATH} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer other\r\nContent-Length: 2000000\r\n\r\n")).await;
    let said = large.rest().await;
    assert!(said.starts_with("HTTP/1.1 401 "), "{said}");
    let good = post(PATH, "{}").id("a").header("authorization", "Bearer canary-token");
    assert_eq!(good.to(service.address).await.status, 204);
    assert_eq!(db.effects().await, ["a"]);
    let headers = db.texts("SELECT headers FROM effect").await;
    assert_eq!(headers, ["host idempotency-key"], "the token is not kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_body_is_checked_as_it_was_sent() {
    let db = Database::new().await;
    let github = Verifier::github([Secret::new("It's a Secret to Everybody")]).unwrap();
    let inbox = db.inbox().id(Selector::Header("x-github-delivery".into()));
    let service = Service::start(http().access(Access::Verified(github)), inbox).await;
    let signed = |body: &'static str| {
        post(PATH, body).header("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958").header(
            "X-Hub-Signature-256",
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        )
    };
    let changed = signed("Hello, World").to(service.address).await;
    assert!(!changed.problem(401).contains("757107ea"), "{changed:?}");
    assert_eq!(changed.header("www-authenticate"), Some(r#"Signature realm="oncebox""#));
    assert_eq!(signed("Hello, World!").to(service.address).await.status, 204);
    assert_eq!(db.effects().await, ["72d3162e-cc78-11e3-81ab-4c9367dc0958"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_is_refused_by_its_time() {
    let db = Database::new().await;
    let verifier =
        Verifier::standard_webhooks([Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]).unwrap();
    let call = || {
        post(PATH, r#"{"test": 2432232314}"#)
            .header("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
            .header("webhook-timestamp", "1614265330")
            .header("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
    };
    for (now, status) in [(1_614_265_400, 204), (1_614_266_000, 401)] {
        let inbox = db.inbox().id(Selector::Header("webhook-id".into()));
        let http = http().access(Access::Verified(verifier.clone())).clock(at(now));
        let service = Service::start(http, inbox).await;
        assert_eq!(call().to(service.address).await.status, status);
        // Another id beside the one that is signed would make a new message of it.
        call().header("webhook-id", "another").to(service.address).await.problem(401);
        service.stop().await;
    }
    assert_eq!(db.effects().await, ["msg_p5jXN8AQM9LWM0D4loKWxJek"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_cannot_write_for_another() {
    let db = Database::new().await;
    let token = |token: &str| Verifier::bearer([Secret::new(token)]).unwrap();
    let verifiers: BTreeMap<_, _> = [("acme", "of-acme"), ("zenith", "of-zenith")]
        .map(|(name, secret)| (name.to_owned(), token(secret)))
        .into();
    let access = Access::ByParameter { parameter: "tenant".to_owned(), verifiers };
    let http = HttpInbox::apply("/in/{tenant}".parse().unwrap()).access(access.clone());
    let service = Service::start(http, db.inbox().tenant(Selector::Path("tenant".into()))).await;
    let send = async |tenant: &str, token: &str| {
        let call =
            post(&format!("/in/{tenant}"), "{}").id("a").header("authorization", format!("Bearer {token}"));
        call.to(service.address).await.status
    };
    assert_eq!(send("acme", "of-acme").await, 204);
    assert_eq!(send("zenith", "of-acme").await, 401);
    assert_eq!(send("nobody", "of-acme").await, 401);
    assert_eq!(db.texts("SELECT tenant FROM effect").await, ["acme"]);
    let error = HttpInbox::apply(PATH.parse().unwrap()).access(access).open().unwrap_err();
    assert!(error.to_string().contains("has no such parameter"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_gets_its_question_back_if_it_is_slack_that_asks() {
    let db = Database::new().await;
    let slack = Verifier::slack([Secret::new("8f742231b10e8888abcd99yyyzzz85a5")]).unwrap();
    let http = http().access(Access::Verified(slack)).clock(at(1_531_420_618));
    let service = Service::start(http, db.inbox().id(Selector::Json("/event_id".into()))).await;
    let question = r#"{"token":"t","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}"#;
    let ask = |signature: &str| {
        post(PATH, question)
            .header("x-slack-request-timestamp", "1531420618")
            .header("x-slack-signature", signature)
    };
    ask("v0=00").to(service.address).await.problem(401);
    let answer = ask(SLACK_QUESTION).to(service.address).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.body, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P");
    assert_eq!(db.effects().await, [""; 0]);
}

/// Computed with another implementation of HMAC.
const SLACK_QUESTION: &str = "v0=9815b856719f49294457425f6c73f1ccbe3172750a83b6066a7f04c0fdcabec4";
