//! A Kafka of our own: one process that is broker and controller.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;

use super::{Server, Service, kafka_jars, ports};
use crate::packages;
use crate::process::{self, Daemon, bound_to_us};
use crate::side_by_side::Starter;

const PROPERTIES: &str = include_str!("../../kafka/server.properties");
const LOGGING: &str = include_str!("../../kafka/log4j2.properties");
const JAVA_NEEDED: u32 = 17;
/// For tests that start a broker of their own.
const JAVA_VARIABLE: &str = "ONCEBOX_TEST_JAVA";
const JARS_VARIABLE: &str = "ONCEBOX_TEST_KAFKA_JARS";
const READY_LIMIT: Duration = Duration::from_secs(90);

/// What a test needs to start a broker of its own, each with its variable.
pub(super) fn programs() -> Result<[(&'static str, PathBuf); 2]> {
    Ok([(JAVA_VARIABLE, java()?), (JARS_VARIABLE, kafka_jars::get()?)])
}

/// Formats the storage and starts the broker.
pub(super) fn start(run_dir: &Path, starter: &Starter) -> Result<Server> {
    let java = java()?;
    let jars = kafka_jars::get()?;
    let home = run_dir.join("kafka");
    fs::create_dir(&home)?;
    let logging = home.join("log4j2.properties");
    fs::write(&logging, LOGGING)?;
    let java_args = [
        format!("-Dlog4j2.configurationFile={}", logging.display()),
        "-cp".to_owned(),
        // Java itself expands the star.
        jars.join("*").display().to_string(),
    ];

    ports::with_free(|[port, controller_port]| {
        // The controller's port is written into the data, so new ports need new data.
        let data = home.join(format!("data-{port}"));
        let properties = home.join("server.properties");
        fs::write(&properties, fill(&data, port, controller_port))?;

        let mut format = Command::new(&java);
        format.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]).args(&java_args);
        format.args(["kafka.tools.StorageTool", "format", "--standalone", "-t", &cluster_id(), "-c"]);
        let log = run_dir.join("kafka-format.log");
        process::run_logged("formatting Kafka's storage", format.arg(&properties), &log)?;

        let mut server = bound_to_us(&java, Signal::SIGTERM);
        server.args(["-Xms512m", "-Xmx1g"]).args(&java_args).arg("kafka.Kafka").arg(&properties);
        server.current_dir(&home);
        let log = run_dir.join("kafka.log");
        let mut daemon = Daemon::spawn(starter, "Kafka", server, Signal::SIGTERM, &log)?;
        // The log comes first: a connection attempt to a port on which nobody listens yet could meet itself.
        let started = |daemon: &Daemon| daemon.has_logged("Kafka Server started");
        daemon.wait_until(READY_LIMIT, |daemon| started(daemon) && ports::accepts(port))?;
        Ok(Server { daemon, helper: None, port, value: format!("127.0.0.1:{port}") })
    })
}

fn fill(data: &Path, port: u16, controller_port: u16) -> String {
    PROPERTIES
        .replace("{data}", &data.display().to_string())
        .replace("{controller_port}", &controller_port.to_string())
        .replace("{port}", &port.to_string())
}

/// 16 random bytes in base64url without padding, not starting with a dash. Letters and digits are a part of
/// that alphabet; the last character carries two bits only.
fn cluster_id() -> String {
    (0..21).map(|_| fastrand::alphanumeric()).chain(['A']).collect()
}

/// A Java that is new enough: of JAVA_HOME, else of PATH.
fn java() -> Result<PathBuf> {
    let find = || {
        let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
        home.filter(|file| packages::is_program(file)).or_else(|| packages::on_path("java"))
    };
    let instead = format!(", or set {} to host:port of a running Kafka", Service::Kafka.variable());
    let java = packages::find_or_install(
        find,
        "default-jre-headless",
        "Java (java, in JAVA_HOME or on PATH)",
        &instead,
    )?;

    let hint = format!("Kafka needs Java {JAVA_NEEDED} or newer: install it, set JAVA_HOME{instead}");
    let output = Command::new(&java)
        .arg("-version")
        .output()
        .with_context(|| format!("{} cannot be run. {hint}", java.display()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    match java_version(&text) {
        Some(version) if output.status.success() && version >= JAVA_NEEDED => Ok(java),
        Some(version) if output.status.success() => bail!("{} is Java {version}. {hint}", java.display()),
        _ => bail!(
            "`{} -version` does not answer like a Java ({}): {}\n{hint}",
            java.display(),
            output.status,
            text.lines().next().unwrap_or("it printed nothing")
        ),
    }
}

/// The number in `openjdk version "17.0.15" 2025-04-15`; Java 8 calls itself 1.8.
fn java_version(text: &str) -> Option<u32> {
    let version = text.split_once(" version \"")?.1;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_versions() {
        assert_eq!(java_version("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK"), Some(17));
        assert_eq!(java_version("Picked up X\nopenjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(java_version("java version \"1.8.0_292\""), Some(8));
        assert_eq!(java_version("openjdk version \"25-ea\" 2025-09-16"), Some(25));
        assert_eq!(java_version("command not found"), None);
    }

    #[test]
    fn nothing_is_left_to_fill() {
        let text = fill(Path::new("/tmp/data"), 1234, 5678);
        assert!(text.contains("PLAINTEXT://127.0.0.1:1234,CONTROLLER://127.0.0.1:5678"));
        assert!(text.contains("log.dirs=/tmp/data"));
        assert!(!text.contains('{'));
    }

    #[test]
    fn cluster_ids_have_the_right_length() {
        let id = cluster_id();
        assert!(id.len() == 22 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
    }
}
