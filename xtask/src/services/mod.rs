//! Real PostgreSQL and real Kafka on loopback, each run with its own ports and data.

mod given;
mod kafka;
mod kafka_jars;
pub(crate) mod ports;
mod postgres;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use given::Given;
use kafka::Kafka;
use postgres::Postgres;

/// The URL of a PostgreSQL superuser: read by us to use a running server, and by the tests.
pub(crate) const POSTGRES: &str = "ONCEBOX_TEST_POSTGRES";
/// The Kafka bootstrap servers, likewise.
pub(crate) const KAFKA: &str = "ONCEBOX_TEST_KAFKA";
/// The directory of this run, for the tests' own files.
const DIR: &str = "ONCEBOX_TEST_DIR";

/// A PostgreSQL and a Kafka that answer. Those that we started stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Services {
    // Dropped in this order: the servers before their directory.
    kafka: Source<Kafka>,
    postgres: Source<Postgres>,
    dir: TempDir,
}

#[derive(Debug)]
enum Source<T> {
    Given(Given),
    Started(T),
}

impl Services {
    /// Starts what the environment does not name. Call it from the main thread (see
    /// [`crate::process::bound_to_us`]).
    pub(crate) fn start() -> Result<Self> {
        // First the cheap checks of what was given, then the servers.
        let given_postgres = Given::postgres()?;
        let given_kafka = Given::kafka()?;

        let dir = tempfile::Builder::new().prefix("oncebox-").tempdir().context("no temporary directory")?;
        // PostgreSQL runs as another user when we are root, and must be able to enter.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;

        let postgres = match given_postgres {
            Some(given) => Source::Given(given),
            None => Source::Started(timed("PostgreSQL", || Postgres::start(dir.path()), Postgres::address)?),
        };
        let kafka = match given_kafka {
            Some(given) => Source::Given(given),
            None => Source::Started(timed("Kafka", || Kafka::start(dir.path()), Kafka::address)?),
        };
        Ok(Self { kafka, postgres, dir })
    }

    /// The URL of a PostgreSQL superuser.
    pub(crate) fn postgres_url(&self) -> String {
        match &self.postgres {
            Source::Given(given) => given.value().to_owned(),
            Source::Started(postgres) => postgres.url(),
        }
    }

    /// The Kafka bootstrap servers.
    pub(crate) fn kafka_brokers(&self) -> String {
        match &self.kafka {
            Source::Given(given) => given.value().to_owned(),
            Source::Started(kafka) => kafka.address(),
        }
    }

    /// The directory of this run: the servers' data and logs, and whatever the tests put there.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Leaves the directory behind.
    pub(crate) fn keep_dir(&mut self) {
        self.dir.disable_cleanup(true);
        eprintln!("xtask: keeping {}", self.dir().display());
    }

    /// The environment for a process that uses the services.
    pub(crate) fn env(&self) -> [(&'static str, String); 3] {
        [
            (POSTGRES, self.postgres_url()),
            (KAFKA, self.kafka_brokers()),
            (DIR, self.dir().display().to_string()),
        ]
    }

    /// Shell lines for another terminal. What came from the environment is not repeated: it may hold a
    /// password.
    pub(crate) fn exports(&self) -> String {
        let line = |name: &str, started: Option<String>| match started {
            Some(value) => format!("export {name}={value}\n"),
            None => format!("# {name} is already set\n"),
        };
        let postgres = matches!(self.postgres, Source::Started(_)).then(|| self.postgres_url());
        let kafka = matches!(self.kafka, Source::Started(_)).then(|| self.kafka_brokers());
        line(POSTGRES, postgres) + &line(KAFKA, kafka)
    }

    /// An error when a server that we started has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        if let Source::Started(postgres) = &mut self.postgres {
            postgres.check_alive()?;
        }
        if let Source::Started(kafka) = &mut self.kafka {
            kafka.check_alive()?;
        }
        Ok(())
    }
}

fn timed<T>(name: &str, start: impl FnOnce() -> Result<T>, address: impl Fn(&T) -> String) -> Result<T> {
    let began = Instant::now();
    let started = start().with_context(|| format!("no {name} for the tests"))?;
    eprintln!("xtask: {name} on {}, started in {:.1} s", address(&started), began.elapsed().as_secs_f64());
    Ok(started)
}
