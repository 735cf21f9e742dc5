//! The table of metrics is the only one: the guide shows it, and nobody registers a metric beside it.

use std::fs;
use std::path::{Path, PathBuf};

use oncebox_core::metrics::{ALL, COUNT_CAP, Kind, Metric};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The row of a metric in the guide.
fn row(metric: &Metric) -> String {
    let labels =
        if metric.labels.is_empty() { String::new() } else { format!("{{{}}}", metric.labels.join(",")) };
    let kind = format!("{:?}", metric.kind).to_lowercase();
    format!("| `{}{labels}` | {kind} | {} |", metric.name, metric.help.trim_end_matches('.'))
}

#[test]
fn the_guide_shows_the_table() {
    let guide = fs::read_to_string(root().join("docs/guides/daemon.md")).expect("the guide");
    let shown: Vec<&str> = guide.lines().filter(|line| line.starts_with("| `oncebox_")).collect();
    let table: Vec<String> = ALL.iter().map(row).collect();
    assert!(shown == table, "docs/guides/daemon.md must show these rows:\n{}", table.join("\n"));
}

#[test]
fn names_and_buckets_are_as_prometheus_wants_them() {
    for metric in ALL {
        let Metric { name, kind, help, buckets, .. } = metric;
        assert!(name.starts_with("oncebox_") && help.ends_with('.'), "{metric:?}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        assert_eq!(buckets.is_empty(), *kind != Kind::Histogram, "{name}");
        assert!(buckets.is_sorted(), "{name}");
        assert_eq!(ALL.iter().filter(|other| other.name == *name).count(), 1, "{name} stands there twice");
    }
    assert_eq!(COUNT_CAP, 10_000, "the help texts say so");
}

#[test]
fn nobody_registers_a_metric_beside_the_table() {
    let mut sources = Vec::new();
    for folder in ["crates", "examples", "bench", "xtask"] {
        collect_sources(&root().join(folder), &mut sources);
    }
    assert!(sources.len() > 200, "the workspace has more files than {}", sources.len());
    let allowed = ["core/src/metrics.rs", "core/tests/metrics_table.rs"].map(Path::new);
    for path in sources.iter().filter(|path| !allowed.iter().any(|end| path.ends_with(end))) {
        let text = fs::read_to_string(path).expect("a source file");
        for call in ["counter!(", "gauge!(", "histogram!("] {
            assert!(
                !text.contains(call),
                "{}: {call}…) belongs in crates/core/src/metrics.rs",
                path.display()
            );
        }
    }
}

fn collect_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            collect_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
