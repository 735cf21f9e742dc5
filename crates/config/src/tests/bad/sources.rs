//! What an inbox reads from: a queue of RabbitMQ, or requests.

use super::problems;
use crate::{Config, Surroundings};

#[test]
fn what_is_for_topics_is_refused_for_a_queue() {
    let queue = |broker: &str, keys: &str| {
        let inbox = format!(
            "[[inbox]]\nconsumer = \"stock\"\nqueue = \"q\"\n{keys}\nhandler = {{ each = [\"SELECT 1\"] }}"
        );
        problems(&format!("[store]\nurl = \"sqlite://x.db\"\n{broker}\n{inbox}"))
    };
    let rabbitmq = "[rabbitmq]\nurl = \"amqp://h\"";
    for (broker, keys, key, said) in [
        ("", "id = \"key\"", "inbox[0].queue", "needs a broker"),
        (rabbitmq, "id = \"key\"\nstart = \"latest\"", "inbox[0].start", "for topics of Kafka"),
        (rabbitmq, "id = \"key\"\ngroup = \"g\"", "inbox[0].group", "for topics of Kafka"),
        (
            rabbitmq,
            "id = \"key\"\nretention_check = \"warn\"",
            "inbox[0].retention_check",
            "for topics of Kafka",
        ),
        (rabbitmq, "id = \"coordinates\"", "inbox[0].id", "only a topic has coordinates"),
        (rabbitmq, "id = \"key\"\nprefetch = 5000", "inbox[0].prefetch", "1 to 2000"),
    ] {
        let problems = queue(broker, keys);
        let found: Vec<_> = problems.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(found, [key], "{problems}");
        assert!(problems.render("x").contains(said), "{problems}");
    }
}

#[test]
fn requests_that_others_can_send_are_verified_unless_said_openly() {
    let requests = |listen: &str, keys: &str| {
        let inbox =
            "[[inbox]]\nconsumer = \"o\"\nid = \"key\"\nhandler = { each = [\"SELECT 1\"] }\n[inbox.http]";
        let text = format!("[store]\nurl = \"sqlite://x.db\"\n{listen}\n{inbox}\npath = \"/in\"\n{keys}");
        Config::parse(&text, &Surroundings::default())
    };
    let relaying = "[http]\n[outbox]\nrelay = true";
    let remote = "[http]\nlisten = \"0.0.0.0:80\"\nallow_remote = true\ndashboard = false";
    assert!(requests("[http]", "").is_ok());
    assert!(requests(remote, "verify = \"none\"").is_ok());
    for (listen, keys, key, said) in [
        ("", "", "inbox[0].http", "needs an address"),
        (remote, "", "inbox[0].http.verify", "others can reach this address"),
        ("[http]", "verify = \"maybe\"", "inbox[0].http.verify", "none"),
        ("[http]", "verify = { scheme = \"github\" }", "inbox[0].http.verify.secrets", "it is missing"),
        ("[http]", "verify = { scheme = \"github\", secrets = [] }", "inbox[0].http.verify.secrets", "empty"),
        (
            "[http]",
            "verify = { scheme = \"hmac\", secrets = [\"s\"] }",
            "inbox[0].http.verify.header",
            "missing",
        ),
        (
            "[http]",
            "verify = { scheme = \"basic\", secrets = [\"s\"] }",
            "inbox[0].http.verify.user",
            "missing",
        ),
        ("[http]", "status = 203", "inbox[0].http.status", "no answer"),
        ("[http]", "status = 204\nbody = \"x\"", "inbox[0].http.status", "no body"),
        ("[http]", "max_body = \"1GiB\"", "inbox[0].http.max_body", "16MiB"),
        ("[http]", "mode = \"later\"", "inbox[0].http.mode", "apply"),
        ("[http]", "mode = \"accept\"", "inbox[0].http.mode", "relay = true"),
        (relaying, "mode = \"accept\"\nstatus = 200", "inbox[0].http.status", "202"),
        ("[http]", "handshake = {}", "inbox[0].http.handshake.origins", "missing"),
        ("[http]", "handshake = { origins = [] }", "inbox[0].http.handshake.origins", "empty"),
        (
            "[http]",
            "verify = { scheme = \"github\", secrets = {} }",
            "inbox[0].http.verify.secrets",
            "nobody",
        ),
        (
            "[http]",
            "verify = { scheme = \"github\", secrets = { a = [] } }",
            "inbox[0].http.verify.secrets.\"a\"",
            "empty",
        ),
    ] {
        let problems = requests(listen, keys).unwrap_err();
        let found: Vec<_> = problems.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(found, [key], "{problems}");
        assert!(problems.render("x").contains(said), "{problems}");
    }
}
