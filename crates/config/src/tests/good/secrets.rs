//! Variables of the environment, and that secrets stay secret.

use super::{RELAYING, SMALL, parse_with, topics};

#[test]
fn variables_reach_every_string() {
    let text = SMALL.replace("stock.db", "${DIR}/stock.db").replace("\"t\"", "\"$${x}${TOPIC}\"");
    let env = |name: &str| Some(if name == "DIR" { "/data" } else { "orders" }.to_owned());
    let problems = parse_with(&text, &env).unwrap_err();
    assert_eq!(problems.iter().next().map(|p| p.key.as_str()), Some("inbox[0].topics[0]"));
    let config = parse_with(&text.replace("$${x}", ""), &env).unwrap();
    assert_eq!(config.store.url.expose(), "sqlite:///data/stock.db");
    assert_eq!(topics(&config.inboxes[0]), ["orders"]);
}

#[test]
fn secrets_show_up_nowhere() {
    let canary = "hunter2";
    let env = |_: &str| Some(canary.to_owned());
    let text = SMALL.replace("sqlite://stock.db", "postgres://erp:${PW}@db/erp").replace(
        "[[inbox]]",
        "[kafka.properties]\n\"sasl.password\" = \"${PW}\"\n\"ssl.key.pem\" = \"hunter2\"\n[[inbox]]",
    );
    let config = parse_with(&text, &env).unwrap();
    assert!(!format!("{config:?} {config:#?} {}", config.store.url.redacted()).contains(canary));

    let webhook = "[[webhook]]\ntopics = [\"t\"]\nurl = \"https://u:${PW}@host/${PW}?a=${PW}#${PW}\"\nsecret = \"${PW}\"\n\
                   headers = { \"authorization\" = \"${PW}\" }\n";
    let relaying = format!("{RELAYING}{webhook}");
    let config = parse_with(&relaying, &env).unwrap();
    assert!(!format!("{config:?} {}", config.webhooks[0].url.origin()).contains(canary), "{config:?}");
    for (good, wrong) in [
        ("\"https://u:${PW}@host/${PW}?a=${PW}#${PW}\"", "\"${PW}\""),
        ("\"https://u:${PW}@host/${PW}?a=${PW}#${PW}\"", "\"ftp://${PW}\""),
        ("secret = \"${PW}\"", "secret = [\"hunter2\"]"),
        ("= \"${PW}\" }", "= \"hunter2\\n\" }"),
    ] {
        assert!(relaying.contains(good), "{good}");
        let problems = parse_with(&relaying.replace(good, wrong), &env).unwrap_err();
        assert!(!format!("{problems} {problems:?}").contains(canary), "{wrong}: {problems}");
    }

    for (good, wrong) in [
        ("postgres://erp:${PW}@db/erp", "${PW}"),
        ("postgres://erp:${PW}@db/erp", "hunter2://x"),
        ("postgres://erp:${PW}@db/erp", "mongodb://erp:${PW}@db"),
        ("postgres://erp:${PW}@db/erp", "mysql://erp:${PW}@db"),
        ("\"postgres://erp:${PW}@db/erp\"", "[\"hunter2\"]"),
        ("\"sasl.password\" = \"${PW}\"", "\"sasl.password\" = [\"hunter2\"]"),
        ("\"sasl.password\" = \"${PW}\"", "\"sasl.password\" = \"hunter2${\""),
    ] {
        let problems = parse_with(&text.replace(good, wrong), &env).unwrap_err();
        assert!(!format!("{problems} {problems:?}").contains(canary), "{wrong}: {problems}");
    }
}
