//! Who may do what, asked of the server and not of its pages.

use axum::http::HeaderName;
use oncebox_dashboard::{Access, Proxy, Settings};

use crate::asked::{ACTOR, READER, Site};
use crate::fake::Fake;

/// Every action with fields that will do.
const ACTIONS: [(&str, &str, &str); 10] = [
    ("pause", "consumer=stock", r#"{"consumer":"stock"}"#),
    ("resume", "consumer=mail", r#"{"consumer":"mail"}"#),
    (
        "move-position",
        "consumer=stock&topic=orders&to=earliest&confirm=stock",
        r#"{"consumer":"stock","topic":"orders","to":"earliest","confirm":"stock"}"#,
    ),
    ("replay-dead", "numbers=5", r#"{"numbers":[5]}"#),
    ("edit-dead", "number=5&seen=0&payload=x", r#"{"number":5,"seen":0,"payload":"x"}"#),
    ("drop-dead", "numbers=5", r#"{"numbers":[5]}"#),
    ("publish-now", "numbers=41", r#"{"numbers":[41]}"#),
    ("park-events", "numbers=41&reason=why", r#"{"numbers":[41],"reason":"why"}"#),
    ("drop-events", "numbers=41", r#"{"numbers":[41]}"#),
    ("purge", "", "{}"),
];

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[tokio::test]
async fn every_action_wants_the_role_to_act() {
    for (name, form, json) in ACTIONS {
        let site = Site::signed_in(Fake::busy());
        let (page, api) = (format!("/do/{name}"), format!("/api/v1/actions/{name}"));
        let reader = bearer(READER);
        let reads = [("authorization", reader.as_str())];
        site.post(&page, &reads, form).await.is(403).has("may read, not act");
        site.post(&api, &reads, json).await.is(403).has("may read, not act");
        site.post(&api, &[], json).await.is(401);
        site.post(&api, &[("authorization", "Bearer wrong")], json).await.is(401);
        let nobody = site.post(&page, &[], form).await;
        assert_eq!((nobody.status.as_u16(), nobody.header("location")), (303, "/sign-in"));
        assert!(site.fake.done.lock().unwrap().is_empty(), "{name} was done");
        let actor = bearer(ACTOR);
        let acts = [("authorization", actor.as_str())];
        let answer = site.post(&api, &acts, json).await;
        assert_eq!(answer.is(200).json()["action"], name);
        site.post(&page, &acts, form).await.is(303);
        let done = site.fake.done.lock().unwrap();
        let names: Vec<_> = done.iter().map(|(action, by)| (action.name(), by.as_str())).collect();
        assert_eq!(names, [(name, "token:act"); 2]);
    }
}

#[tokio::test]
async fn stopping_something_is_an_action_too() {
    let site = Site::signed_in(Fake::busy());
    let (reader, actor) = (bearer(READER), bearer(ACTOR));
    site.post("/api/v1/actions/purge", &[("authorization", &actor)], "{}").await.is(200);
    for path in ["/jobs/1/cancel", "/api/v1/jobs/1/cancel"] {
        site.post(path, &[("authorization", &reader)], "").await.is(403);
    }
    site.post("/api/v1/jobs/1/cancel", &[("authorization", &actor)], "").await.is(200);
}

#[tokio::test]
async fn nothing_is_read_without_signing_in() {
    let site = Site::signed_in(Fake::busy());
    for path in [
        "/",
        "/find?id=order-9",
        "/dead",
        "/dead/9?payload=show",
        "/dead/9/edit",
        "/consumers/stock",
        "/health",
        "/nothing",
    ] {
        let answer = site.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/sign-in"), "{path}");
        answer.has_not("stock");
    }
    for path in [
        "/api/v1/overview",
        "/api/v1/find?id=order-9",
        "/api/v1/dead-letters",
        "/api/v1/dead-letters/export",
        "/api/v1/openapi.json",
        "/api/v1/nothing",
    ] {
        site.get(path).await.is(401).has_not("stock");
    }
    site.get("/assets/dashboard.css").await.is(200);
    let reader = bearer(READER);
    site.send("GET", "/api/v1/overview", &[("authorization", &reader)], "").await.is(200).has("stock");
}

#[tokio::test]
async fn a_token_becomes_a_cookie_and_goes_again() {
    let site = Site::signed_in(Fake::busy());
    site.post("/sign-in", &[], "token=wrong").await.is(401).has("not known").has_not(READER);
    let answer = site.post("/sign-in", &[], &format!("token={READER}")).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/"));
    let cookie = answer.header("set-cookie").to_owned();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(READER),
        "{cookie}"
    );
    let pair = cookie.split(';').next().unwrap();
    let page = site.send("GET", "/dead/9", &[("cookie", pair)], "").await;
    page.is(200).has("read only").has("Sign out").has_not("/do/replay-dead");
    let left = site.post("/sign-out", &[("cookie", pair)], "").await;
    assert!(left.is(303).header("set-cookie").contains("Max-Age=0"));
}

#[tokio::test]
async fn a_page_of_another_site_cannot_ask_for_anything() {
    for (name, form, json) in ACTIONS {
        let site = Site::local(Fake::busy());
        for foreign in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "http://evil.example")],
            &[("origin", "null")],
            &[("host", "evil.example"), ("origin", "http://evil.example")],
        ] {
            site.post(&format!("/do/{name}"), foreign, form).await.is(403);
            site.post(&format!("/api/v1/actions/{name}"), foreign, json).await.is(403);
        }
        assert!(site.fake.done.lock().unwrap().is_empty(), "{name}");
        let own = [("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:7878")];
        site.post(&format!("/do/{name}"), &own, form).await.is(303);
    }
}

#[tokio::test]
async fn a_foreign_name_that_leads_here_is_not_answered() {
    let site = Site::local(Fake::busy());
    for path in ["/", "/api/v1/overview", "/dead/9?payload=show"] {
        site.send("GET", path, &[("host", "evil.example:7878")], "")
            .await
            .is(403)
            .has_not("stock")
            .has_not("iban");
    }
}

#[tokio::test]
async fn a_proxy_says_who_it_is() {
    let proxy = Proxy {
        header: HeaderName::from_static("x-forwarded-user"),
        from: vec!["127.0.0.1".parse().unwrap()],
        act: vec!["ana".to_owned()],
    };
    let settings = Settings { access: Access::signed_in([], Some(proxy)), ..Settings::default() };
    let site = Site::with(Fake::busy(), settings);
    let as_user = |user: &'static str| [("host", "ops.example"), ("x-forwarded-user", user)];
    site.send("GET", "/", &as_user("ben"), "").await.is(200).has("ben").has("read only");
    site.post("/do/purge", &as_user("ben"), "").await.is(403);
    site.post("/do/purge", &as_user("ana"), "").await.is(303);
    assert_eq!(site.fake.done.lock().unwrap()[0].1, "ana");
    site.get("/").await.is(303);
    site.get("/sign-in").await.is(200).has("proxy");
}

#[tokio::test]
async fn a_browser_is_told_to_load_nothing_from_elsewhere() {
    let site = Site::signed_in(Fake::busy());
    for path in ["/", "/sign-in", "/api/v1/overview", "/assets/live.js", "/nothing"] {
        let answer = site.get(path).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("x-frame-options"), "DENY");
    }
}
