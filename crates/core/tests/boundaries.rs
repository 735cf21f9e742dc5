//! The borders between the crates, as ARCHITECTURE draws them: who may name what, and who may depend on whom.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// What core may not name: databases and their drivers, brokers and their clients.
const FOREIGN: [&str; 11] = [
    "amqp",
    "kafka",
    "lapin",
    "mongodb",
    "mysql",
    "postgres",
    "rabbitmq",
    "rdkafka",
    "sqlite",
    "sqlx",
    "tokio_postgres",
];

/// What core may not touch: files, the environment, signals.
const OUTSIDE: [&str; 7] =
    ["std::env", "std::fs", "std::net", "tokio::fs", "tokio::net", "tokio::signal", "signal_hook"];

/// Which crates of ours each crate may build on. Whatever is not here is refused.
const MAY_USE: [(&str, &[&str]); 18] = [
    ("core", &[]),
    ("sql", &["core"]),
    ("config", &["core", "sql"]),
    ("mongodb", &["core", "sql"]),
    ("mysql", &["core", "sql"]),
    ("postgres", &["core", "sql"]),
    ("sqlite", &["core", "sql"]),
    ("dashboard", &["core"]),
    ("http", &["core"]),
    ("kafka", &["core", "kafka-ffi"]),
    ("kafka-ffi", &[]),
    ("otlp", &["core"]),
    ("rabbitmq", &["core"]),
    ("webhook", &["core"]),
    ("testkit", &["core"]),
    ("simulation", &["core"]),
    (
        "oncebox",
        &[
            "core", "http", "kafka", "mongodb", "mysql", "postgres", "rabbitmq", "sql", "sqlite", "testkit",
            "webhook",
        ],
    ),
    (
        "cli",
        &[
            "config",
            "core",
            "dashboard",
            "http",
            "kafka",
            "mongodb",
            "mysql",
            "otlp",
            "postgres",
            "rabbitmq",
            "sql",
            "sqlite",
            "webhook",
        ],
    ),
];

/// Crates that speak to a database or a broker, and who may use each.
const SPEAKERS: [(&str, &[&str]); 5] = [
    ("lapin", &["rabbitmq", "cli"]),
    ("mongodb", &["mongodb", "cli"]),
    ("sqlx", &["mysql", "postgres", "sqlite", "cli"]),
    ("sqlx-core", &["mysql", "postgres", "sqlite"]),
    ("rdkafka", &["kafka", "kafka-ffi", "cli"]),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The names of the dependencies that a crate is built with. Those of its tests may be anything.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            inside = section.ends_with("dependencies]") && !section.contains("dev-dependencies");
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            names.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    names
}

/// The lines of code with their numbers. Comments, notes for the compiler's messages and tests may give an example.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_code = |line: &str| !["//", "note = "].iter().any(|prose| line.trim_start().starts_with(prose));
    let before_tests = text.lines().take_while(|line| *line != "mod tests {");
    (1..).zip(before_tests).filter(move |(_, line)| is_code(line))
}

#[test]
fn core_names_no_database_and_no_broker_and_touches_nothing_outside() -> TestResult {
    let mut found = Vec::new();
    for file in sources(&crates().join("core/src"))? {
        let text = std::fs::read_to_string(&file)?;
        for (number, line) in code(&text) {
            let lower = line.to_lowercase();
            let named = FOREIGN.iter().chain(&OUTSIDE).find(|name| lower.contains(**name));
            found.extend(named.map(|name| format!("{}:{}: {name}", file.display(), number)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

#[test]
fn crates_build_only_on_what_they_may_know() -> TestResult {
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(crates())? {
        let folder = entry?;
        let Ok(manifest) = std::fs::read_to_string(folder.path().join("Cargo.toml")) else { continue };
        let name = folder.file_name().to_string_lossy().into_owned();
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("crates/{name} is new: say in this file what it may use"));
            continue;
        };
        for dependency in dependencies(&manifest) {
            let ours = dependency.strip_prefix("oncebox-").or((dependency == "oncebox").then_some("oncebox"));
            let speaker = SPEAKERS.iter().find(|(speaker, _)| *speaker == dependency);
            if ours.is_some_and(|ours| !allowed.contains(&ours))
                || speaker.is_some_and(|(_, users)| !users.contains(&name.as_str()))
            {
                wrong.push(format!("crates/{name} may not depend on {dependency}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_manifest_is_read() {
    let manifest = "[package]\nname = \"x\"\n[features]\na = []\n[dependencies]\noncebox-core.workspace = true\n# no\n\
                    sqlx = { workspace = true }\n[dev-dependencies]\ntempfile = \"3\"\n[target.'cfg(unix)'.dependencies]\nnix = \"1\"\n";
    let names: Vec<_> = dependencies(manifest).into_iter().collect();
    assert_eq!(names, ["nix", "oncebox-core", "sqlx"]);
}
