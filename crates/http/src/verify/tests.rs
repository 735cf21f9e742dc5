//! Requests as the senders make them: the vectors of their documentation where there are any, OpenSSL's otherwise.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

/// A request that is good at this time, and for these secrets.
#[derive(Clone)]
struct Fixture {
    name: &'static str,
    verifier: Verifier,
    headers: HeaderMap,
    body: &'static [u8],
    now_s: i64,
}

impl Fixture {
    fn new(
        name: &'static str,
        verifier: Result<Verifier, KeyError>,
        headers: &[(&'static str, &str)],
        body: &'static [u8],
        now_s: i64,
    ) -> Self {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        Self { name, verifier: verifier.unwrap(), headers: map, body, now_s }
    }

    fn verify(&self) -> Result<(), NotVerified> {
        self.verifier.verify(&self.headers, self.body, self.now_s)
    }

    fn with(&self, header: &'static str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.insert(header, value.parse().unwrap());
        changed
    }
}

fn secret(text: &str) -> [Secret; 1] {
    [Secret::new(text)]
}

const STANDARD_BODY: &[u8] = br#"{"test": 2432232314}"#;
const STANDARD_TAG: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const STANDARD_ED25519: &str =
    "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag==";
const PUBLIC_KEY: &str = "whpk_ZlN4eg7dSSqi0moX9hQUk3orrOouK3QVQSlJa248c/g=";
const STRIPE_OLD: &str = "654b43d3508ecadb3f8cefc4bc7d3d2bdc5ba9e03bf2c89b2d0657a8e24e4543";
const STRIPE_NEXT: &str = "e58be054674d9352a5857cbc7de7848833233209dda182f7c07975b382293c1a";

fn standard(secrets: impl IntoIterator<Item = Secret>, signature: &str) -> Fixture {
    let headers = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", signature),
    ];
    Fixture::new(
        "standard webhooks",
        Verifier::standard_webhooks(secrets),
        &headers,
        STANDARD_BODY,
        1_614_265_330,
    )
}

fn symmetric() -> Fixture {
    standard(secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), STANDARD_TAG)
}

fn stripe(signature: &str) -> Fixture {
    Fixture::new(
        "stripe",
        Verifier::stripe(secret("whsec_test_secret")),
        &[("stripe-signature", signature)],
        br#"{"id":"evt_1","object":"event"}"#,
        1_492_774_600,
    )
}

fn github() -> Fixture {
    Fixture::new(
        "github",
        Verifier::github(secret("It's a Secret to Everybody")),
        &[("x-hub-signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")],
        b"Hello, World!",
        0,
    )
}

fn shopify() -> Fixture {
    Fixture::new(
        "shopify",
        Verifier::shopify(secret("hush")),
        &[("x-shopify-hmac-sha256", "qBvrsZF7RfB1iS6BX6IHqJTp5L911P7intnPeTPsH0I=")],
        br#"{"id":820982911946154508}"#,
        0,
    )
}

fn slack() -> Fixture {
    let body = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&\
        channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&\
        response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&\
        trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    let headers = [
        ("x-slack-request-timestamp", "1531420618"),
        ("x-slack-signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
    ];
    let verifier = Verifier::slack(secret("8f742231b10e8888abcd99yyyzzz85a5"));
    Fixture::new("slack", verifier, &headers, body, 1_531_420_618)
}

fn generic() -> Fixture {
    let signature = BodySignature {
        header: HeaderName::from_static("x-acme-signature"),
        encoding: Encoding::Hex,
        prefix: "hmac ".to_owned(),
    };
    let tag = "hmac A81BEBB1917B45F075892E815FA207A894E9E4BF75D4FEE29ED9CF7933EC1F42";
    Fixture::new(
        "generic",
        Verifier::hmac(secret("hush"), signature),
        &[("x-acme-signature", tag)],
        br#"{"id":820982911946154508}"#,
        0,
    )
}

fn bearer() -> Fixture {
    let verifier = Verifier::bearer([Secret::new("mF_9.B5f-4.1JqM"), Secret::new("the next one")]);
    Fixture::new("bearer", verifier, &[("authorization", "Bearer mF_9.B5f-4.1JqM")], b"anything", 0)
}

fn basic() -> Fixture {
    let verifier = Verifier::basic([("Aladdin", Secret::new("open sesame")), ("test", Secret::new("123£"))]);
    let headers = [("authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")];
    Fixture::new("basic", verifier, &headers, b"anything", 0)
}

fn signed() -> Vec<Fixture> {
    let ed25519 = standard(secret(PUBLIC_KEY), STANDARD_ED25519);
    let stripe = stripe(&format!("t=1492774577,v1={STRIPE_OLD},v0=6ffbb59b2300aae63f272406069a9788"));
    vec![symmetric(), ed25519, stripe, github(), shopify(), slack(), generic()]
}

fn all() -> Vec<Fixture> {
    let mut all = signed();
    all.extend([bearer(), basic()]);
    all
}

#[test]
fn each_scheme_takes_its_own_request() {
    for fixture in all() {
        assert_eq!(fixture.verify(), Ok(()), "{}", fixture.name);
    }
}

#[test]
fn a_changed_body_is_not_verified() {
    for fixture in signed() {
        for body in [&b""[..], b" ", &fixture.body[1..], &[fixture.body, b"\n"].concat()] {
            let changed = fixture.verifier.verify(&fixture.headers, body, fixture.now_s);
            let header = fixture.verifier.proof_header();
            assert_eq!(changed, Err(NotVerified::NoMatch(header)), "{}", fixture.name);
        }
    }
}

#[test]
fn another_secret_verifies_nothing() {
    let others = [
        Verifier::standard_webhooks(secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx")).unwrap(),
        Verifier::standard_webhooks(secret("whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=")).unwrap(),
        Verifier::stripe(secret("whsec_test_secre")).unwrap(),
        Verifier::github(secret("its a secret to everybody")).unwrap(),
        Verifier::shopify(secret("hush ")).unwrap(),
        Verifier::slack(secret("8f742231b10e8888abcd99yyyzzz85a4")).unwrap(),
    ];
    for (fixture, verifier) in signed().iter().zip(others) {
        let other = verifier.verify(&fixture.headers, fixture.body, fixture.now_s);
        assert_eq!(other, Err(NotVerified::NoMatch(verifier.proof_header())), "{}", fixture.name);
    }
}

#[test]
fn every_header_of_a_check_must_be_there_once() {
    for fixture in all() {
        for name in fixture.headers.keys() {
            let mut without = fixture.clone();
            without.headers.remove(name);
            assert_eq!(without.verify(), Err(NotVerified::Missing(name.clone())), "{}", fixture.name);

            // Even the same value twice: the inbox would read the last one, whatever it is.
            let mut twice = fixture.clone();
            let value = fixture.headers[name].clone();
            twice.headers.append(name, value);
            assert_eq!(twice.verify(), Err(NotVerified::Repeated(name.clone())), "{}", fixture.name);
        }
    }
}

#[test]
fn an_old_copy_and_one_from_the_future_are_refused() {
    for fixture in signed().into_iter().filter(|fixture| fixture.now_s > 0) {
        for (now_s, good) in [(-400, false), (-250, true), (250, true), (400, false)] {
            let at = Fixture { now_s: fixture.now_s + now_s, ..fixture.clone() };
            let found = at.verify();
            assert_eq!(found.is_ok(), good, "{} at {now_s}: {found:?}", fixture.name);
        }
        let patient = Fixture {
            verifier: fixture.verifier.clone().tolerance(Duration::from_secs(86_400)),
            now_s: fixture.now_s + 86_000,
            ..fixture.clone()
        };
        assert_eq!(patient.verify(), Ok(()), "{}", fixture.name);
    }
}

#[test]
fn the_time_is_signed_too() {
    for (fixture, header, now_s) in [
        (symmetric(), "webhook-timestamp", "1614265331"),
        (slack(), "x-slack-request-timestamp", "1531420619"),
    ] {
        let moved = fixture.with(header, now_s);
        assert_eq!(moved.verify(), Err(NotVerified::NoMatch(fixture.verifier.proof_header())));
    }
    let moved = stripe(&format!("t=1492774578,v1={STRIPE_OLD}"));
    assert!(matches!(moved.verify(), Err(NotVerified::NoMatch(_))));
}

#[test]
fn the_id_of_a_standard_webhook_is_signed_too() {
    let other = symmetric().with("webhook-id", "msg_another");
    assert!(matches!(other.verify(), Err(NotVerified::NoMatch(_))));
    // `id.time.body` can be cut in another place, if the id may hold a dot.
    let mut shifted = symmetric().with("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330");
    shifted.headers.insert("webhook-timestamp", "1614265331".parse().unwrap());
    assert!(matches!(shifted.verify(), Err(NotVerified::Unreadable(_))));
}

#[test]
fn several_signatures_and_several_secrets_let_a_secret_be_changed() {
    let other = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=";
    let list = format!("{other} v2,AAAA v1a,AAAA {STANDARD_TAG} {STANDARD_ED25519}");
    let secrets =
        || ["another", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", PUBLIC_KEY].map(Secret::new).into_iter();
    assert_eq!(standard(secrets(), &list).verify(), Ok(()));
    assert_eq!(standard(secrets(), STANDARD_TAG).verify(), Ok(()));
    assert_eq!(standard(secrets(), STANDARD_ED25519).verify(), Ok(()));
    assert!(standard(secrets(), other).verify().is_err());
    assert!(standard(secrets(), &other.replace("v1,", "v1a,")).verify().is_err());

    let both = format!("t=1492774577,v1={STRIPE_NEXT},v1={STRIPE_OLD}");
    assert_eq!(stripe(&both).verify(), Ok(()));
    let mut next = stripe(&format!("t=1492774577,v1={STRIPE_NEXT}"));
    assert!(next.verify().is_err());
    next.verifier = Verifier::stripe(["whsec_test_secret", "whsec_next_secret"].map(Secret::new)).unwrap();
    assert_eq!(next.verify(), Ok(()));
}

#[test]
fn a_symmetric_signature_is_no_proof_for_a_public_key() {
    // Whoever knows the public key could make one.
    let as_hmac = standard(secret(PUBLIC_KEY), STANDARD_TAG);
    assert!(matches!(as_hmac.verify(), Err(NotVerified::NoMatch(_))));
    let as_ed25519 =
        standard(secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), &STANDARD_TAG.replace("v1,", "v1a,"));
    assert!(matches!(as_ed25519.verify(), Err(NotVerified::NoMatch(_))));
}

#[test]
fn signatures_that_are_written_otherwise_are_not_read() {
    for list in ["", "v1", "v1,", ",", "v1;g0hM", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="] {
        assert!(symmetric().with("webhook-signature", list).verify().is_err(), "{list}");
    }
    for value in [
        "",
        "t=1492774577",
        "v1=00",
        &format!("v1={STRIPE_OLD}"),
        &format!("t=1492774577,v0={STRIPE_OLD}"),
        &format!("t=1492774577,t=1492774578,v1={STRIPE_OLD}"),
        &format!("t=+1492774577,v1={STRIPE_OLD}"),
    ] {
        let found = stripe(value).verify();
        assert!(matches!(found, Err(NotVerified::Unreadable(_))), "{value}: {found:?}");
    }
    for (fixture, value) in [
        (github(), "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"),
        (github(), "sha1=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"),
        (github(), "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e1"),
        (shopify(), "a81bebb1917b45f075892e815fa207a894e9e4bf75d4fee29ed9cf7933ec1f4"),
        (slack(), "v1=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
        (generic(), "A81BEBB1917B45F075892E815FA207A894E9E4BF75D4FEE29ED9CF7933EC1F42"),
    ] {
        let mut odd = fixture.clone();
        odd.headers.insert(fixture.verifier.proof_header(), value.parse().unwrap());
        let found = odd.verify();
        assert!(matches!(found, Err(NotVerified::Unreadable(_))), "{}: {found:?}", fixture.name);
    }
}

#[test]
fn tokens_and_passwords() {
    for good in ["Bearer the next one", "bearer mF_9.B5f-4.1JqM", "BEARER  mF_9.B5f-4.1JqM"] {
        assert_eq!(bearer().with("authorization", good).verify(), Ok(()), "{good}");
    }
    for bad in ["", "Bearer", "Bearer ", "mF_9.B5f-4.1JqM", "Bearer mF_9.B5f-4.1Jq", "Basic mF_9.B5f-4.1JqM"]
    {
        assert!(bearer().with("authorization", bad).verify().is_err(), "{bad}");
    }
    // `test:123£`, as RFC 7617 has it; with and without padding.
    for good in ["Basic dGVzdDoxMjPCow==", "basic dGVzdDoxMjPCow"] {
        assert_eq!(basic().with("authorization", good).verify(), Ok(()), "{good}");
    }
    // `Aladdin:123£`: the password of somebody else.
    for bad in
        ["Basic", "Basic !", "Basic QWxhZGRpbjoxMjPCow==", "Basic QWxhZGRpbg==", "Bearer dGVzdDoxMjPCow=="]
    {
        assert!(basic().with("authorization", bad).verify().is_err(), "{bad}");
    }
    assert_eq!(Verifier::bearer(secret("")).err(), Some(KeyError::Empty));
    assert_eq!(Verifier::basic([("a", Secret::new(""))]).err(), Some(KeyError::Empty));
    assert_eq!(Verifier::basic([("a:b", Secret::new("c"))]).err(), Some(KeyError::ColonInUser));
    assert_eq!(Verifier::basic::<&str>([]).err(), Some(KeyError::None));
}

#[test]
fn a_token_is_judged_by_the_headers_alone() {
    for fixture in [bearer(), basic()] {
        assert!(fixture.with("authorization", "Bearer nobody").verifier.claim(&HeaderMap::new(), 0).is_err());
        fixture.verifier.claim(&fixture.headers, 0).unwrap().check(b"whatever it is").unwrap();
    }
    // A signature that is too old needs no body either.
    assert!(symmetric().verifier.claim(&symmetric().headers, 0).is_err());
}

#[test]
fn nothing_shows_a_secret_or_a_signature() {
    let secrets = [Secret::new("canary-secret"), Secret::new("whsec_Y2FuYXJ5")];
    let signature = BodySignature {
        header: HeaderName::from_static("x-sig"),
        encoding: Encoding::Hex,
        prefix: String::new(),
    };
    let verifiers = [
        Verifier::standard_webhooks(secrets.clone()),
        Verifier::stripe(secrets.clone()),
        Verifier::slack(secrets.clone()),
        Verifier::github(secrets.clone()),
        Verifier::shopify(secrets.clone()),
        Verifier::hmac(secrets.clone(), signature),
        Verifier::bearer(secrets),
        Verifier::basic([("user", Secret::new("canary"))]),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("webhook-id", "canary"),
        ("webhook-timestamp", "0"),
        ("webhook-signature", "v1,Y2FuYXJ5"),
        ("stripe-signature", "t=0,v1=ca4a47"),
        ("x-slack-request-timestamp", "0"),
        ("x-slack-signature", "v0=ca4a47"),
        ("x-hub-signature-256", "sha256=ca4a47"),
        ("x-shopify-hmac-sha256", "Y2FuYXJ5"),
        ("x-sig", "ca4a47"),
        ("authorization", "Basic Y2FuYXJ5"),
    ] {
        headers.insert(name, value.parse().unwrap());
    }
    for verifier in verifiers {
        let verifier = verifier.unwrap();
        let error = verifier.verify(&headers, b"body", 0).unwrap_err();
        let claim = verifier.claim(&headers, 0);
        let text = format!("{error} {error:?} {verifier:?} {claim:?}");
        for canary in ["canary", "Y2FuYXJ5", "ca4a47"] {
            assert!(!text.contains(canary), "{text}");
        }
    }
}

proptest! {
    /// Whatever the headers hold, the answer is an error and not a panic.
    #[test]
    fn any_header_is_judged(value in "[ -~]{0,80}", which in 0_usize..9) {
        let fixture = &all()[which];
        let mut odd = fixture.clone();
        let Ok(value) = value.parse() else { return Ok(()) };
        odd.headers.insert(fixture.verifier.proof_header(), value);
        prop_assert!(odd.verify().is_err());
    }
}
