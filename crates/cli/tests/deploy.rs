//! The dashboard and the alarms in `deploy` speak of metrics that oncebox exports, with the labels that they have.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::Path;

use oncebox_core::metrics::{ALL, Kind, Metric};
use serde_json::Value;

/// What Prometheus itself adds.
const ADDED: [&str; 3] = ["job", "instance", "le"];

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The metric behind a name in a query. A histogram has three.
fn metric(name: &str) -> Option<&'static Metric> {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    ALL.iter().find(|metric| match metric.kind {
        Kind::Histogram => of_histogram == Some(metric.name),
        Kind::Counter | Kind::Gauge => name == metric.name,
    })
}

/// What a query asks for: each metric with the labels that stand in its braces.
fn asked(query: &str) -> Vec<(&str, Vec<&str>)> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    query
        .match_indices("oncebox_")
        .map(|(at, _)| {
            let (name, rest) =
                query[at..].split_at(query[at..].find(|c| !is_name(c)).unwrap_or(query.len() - at));
            let braces = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
            let labels = braces.into_iter().flat_map(|braces| braces.split(','));
            (name, labels.map(|label| label.split(['=', '!']).next().unwrap().trim()).collect())
        })
        .collect()
}

/// The labels by which a query sums.
fn grouped(query: &str) -> impl Iterator<Item = &str> {
    let groups = ["by (", "on ("].iter().flat_map(|word| query.split(*word).skip(1));
    groups.flat_map(|rest| rest.split(')').next().unwrap().split(',')).map(str::trim)
}

/// The names of the metrics that it asks for.
fn check(query: &str) -> BTreeSet<&'static str> {
    let asked = asked(query);
    assert!(!asked.is_empty(), "no metric of oncebox: {query}");
    let mut known: BTreeSet<&str> = ADDED.into();
    let mut names = BTreeSet::new();
    for (name, labels) in asked {
        let metric = metric(name).unwrap_or_else(|| panic!("nobody exports {name}: {query}"));
        for label in labels {
            let has = metric.labels.contains(&label) || ADDED.contains(&label);
            assert!(has, "{name} has no label {label}: {query}");
        }
        known.extend(metric.labels);
        names.insert(metric.name);
    }
    for label in grouped(query) {
        assert!(known.contains(label), "nothing has a label {label}: {query}");
    }
    names
}

#[test]
fn the_dashboard_shows_every_metric() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/oncebox.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
    let mut shown = BTreeSet::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            shown.extend(check(target["expr"].as_str().unwrap()));
        }
    }
    assert_eq!(shown, ALL.iter().map(|metric| metric.name).collect());
    for variable in dashboard["templating"]["list"].as_array().unwrap().iter().skip(1) {
        let query = variable["query"]["query"].as_str().unwrap();
        let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
        let (name, label) = inner.split_once(", ").unwrap();
        assert_eq!(variable["name"], label);
        assert!(metric(name).unwrap().labels.contains(&label) || ADDED.contains(&label), "{query}");
    }
}

/// The rules, and that the guide says of each what to do.
#[test]
fn the_alarms_are_about_metrics_that_there_are() {
    let rules = read("deploy/prometheus/alerts.yml");
    let guide = read("docs/guides/production.md");
    let tests = read("deploy/prometheus/alerts_test.yml");
    let rules: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(!rules.is_empty());
    for rule in rules {
        let name = rule.lines().next().unwrap();
        let query = rule.split("expr: ").nth(1).unwrap_or_else(|| panic!("{name} has no query"));
        let query: Vec<&str> =
            query.lines().take_while(|line| !line.trim_start().starts_with("for:")).collect();
        let query: Vec<&str> = query.into_iter().take_while(|line| !line.contains("labels:")).collect();
        check(query.join(" ").trim_start_matches(">-"));
        assert!(guide.contains(&format!("`{name}`")), "the guide does not say what {name} is");
        assert!(tests.contains(&format!("alertname: {name}")), "nobody tries out {name}");
    }
}
