//! `[http]`, `[rabbitmq]`, `[limits]`, `[purge]`, `[telemetry]` and `[log]`.

use super::{BASE, Case};
use crate::{Config, Surroundings};

pub(super) const CASES: &[Case] = &[
    ("[[inbox]]", "[limits]\nmemory = \"1KiB\"\n[[inbox]]", "limits.memory", 10, "from \"4MiB\" to"),
    ("127.0.0.1:7878", "localhost", "http.listen", 8, "\"localhost\" is not an address with a port"),
    (
        "127.0.0.1:7878",
        "0.0.0.0:7878",
        "http.listen",
        8,
        "no authentication; listen on 127.0.0.1, or set `allow_remote = true`",
    ),
    ("[http]", "[rabbitmq]\n[http]", "rabbitmq.url", 7, "it is missing"),
    ("[http]", "[rabbitmq]\nurl = \"http://h\"\n[http]", "rabbitmq.url", 8, "not a URL of a RabbitMQ broker"),
    ("[http]", "[telemetry]\n[http]", "telemetry.otlp", 7, "it is missing; write where the collector takes"),
    (
        "[http]",
        "[telemetry]\notlp = \"host:4318\"\n[http]",
        "telemetry.otlp",
        8,
        "not the URL of a collector",
    ),
    (
        "[http]",
        "[telemetry]\notlp = \"http://me:pw@h\"\n[http]",
        "telemetry.otlp",
        8,
        "is not sent; write them under `headers`",
    ),
    (
        "[http]",
        "[telemetry]\notlp = \"http://h\"\nsample = 1.5\n[http]",
        "telemetry.sample",
        9,
        "1.5 is out of range; write a number from 0 to 1",
    ),
    (
        "[http]",
        "[telemetry]\notlp = \"http://h\"\nsample = \"all\"\n[http]",
        "telemetry.sample",
        9,
        "this is a string; write a number",
    ),
    (
        "[http]",
        "[telemetry]\notlp = \"http://h\"\nservicename = \"x\"\n[http]",
        "telemetry.servicename",
        9,
        "did you mean `service_name`",
    ),
    ("[outbox]", "[purge]\nevery = \"0s\"\n[outbox]", "purge.every", 20, "too short"),
];

#[test]
fn a_filter_that_cannot_be_read_and_a_summary_too_often_are_refused() {
    let check_log =
        |filter: &str| if filter == "loud" { Err("\"loud\" is no level".to_owned()) } else { Ok(()) };
    let surroundings = Surroundings { check_log: &check_log, ..Surroundings::default() };
    let text = format!("{BASE}[log]\nlevel = \"loud\"\nsummary = \"100ms\"\n");
    let said = Config::parse(&text, &surroundings).unwrap_err().render("x");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].starts_with("x:31: log.level: \"loud\" is no level; write error, warn, info"), "{said}");
    assert!(lines[1].starts_with("x:32: log.summary: this is too often; write a second or more"), "{said}");
}

#[test]
fn a_dashboard_that_others_can_reach_wants_a_sign_in() {
    let http = |keys: &str| {
        Config::parse(&format!("[store]\nurl = \"sqlite://x.db\"\n[http]\n{keys}"), &Surroundings::default())
    };
    let remote = "listen = \"0.0.0.0:80\"\nallow_remote = true\n";
    let token = "t".repeat(16);
    assert!(http("").is_ok());
    assert!(http(&format!("{remote}dashboard = false")).is_ok());
    assert!(http(&format!("{remote}auth.act = [\"{token}\"]")).is_ok());
    assert!(http(&format!("{remote}auth.proxy = {{ header = \"x-user\", from = [\"10.0.0.1\"] }}")).is_ok());
    for (keys, key, said) in [
        (remote, "http.auth", "nobody has to sign in"),
        ("allow_remote = true", "http.auth", "nobody has to sign in"),
        ("payloads = \"show\"", "http.payloads", "mask"),
        ("trace_url = \"https://jaeger.example\"", "http.trace_url", "{trace}"),
        ("trace_url = \"javascript:{trace}\"", "http.trace_url", "{trace}"),
        ("[http.auth]", "http.auth", "nobody can sign in"),
        ("auth.act = []", "http.auth", "nobody can sign in"),
        ("auth.act = [\"short\"]", "http.auth.act[0]", "can be guessed"),
        ("auth.acts = [\"tttttttttttttttt\"]", "http.auth.acts", "did you mean `act`"),
        (
            "auth = { read = [\"tttttttttttttttt\"], act = [\"tttttttttttttttt\"] }",
            "http.auth.act",
            "each role",
        ),
        ("auth.proxy = { from = [\"10.0.0.1\"] }", "http.auth.proxy.header", "missing"),
        (
            "auth.proxy = { header = \"x y\", from = [\"10.0.0.1\"] }",
            "http.auth.proxy.header",
            "name of a header",
        ),
        ("auth.proxy = { header = \"x\", from = [] }", "http.auth.proxy.from", "empty"),
        ("auth.proxy = { header = \"x\", from = [\"proxy\"] }", "http.auth.proxy.from[0]", "an address"),
    ] {
        let problems = http(keys).unwrap_err();
        let found =
            problems.iter().any(|p| p.key == key && format!("{}; {}", p.message, p.fix).contains(said));
        assert!(found, "{keys}: {problems}");
        assert!(!problems.to_string().contains(&token), "{problems}");
    }
}
