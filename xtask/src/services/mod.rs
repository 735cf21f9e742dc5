//! Real servers on loopback, each run with its own ports and data.

mod account;
mod axe;
mod browser;
mod debian_unstable;
mod given;
mod kafka;
mod kafka_jars;
mod mariadb;
mod mongo_wire;
mod mongod_program;
mod mongodb;
mod mysql;
mod mysql_program;
mod mysqld;
pub(crate) mod ports;
mod postgres;
mod rabbitmq;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use given::Given;
pub(crate) use mysql::Mysql;

use crate::interrupt;
use crate::process::Daemon;
use crate::side_by_side::{self, Starter};

/// The directory of this run, for the tests' own files.
const DIR: &str = "ONCEBOX_TEST_DIR";

/// What can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// The slowest to start comes first.
    Kafka,
    Rabbitmq,
    Mysql,
    Mariadb,
    Mongodb,
    Postgres,
}

impl Service {
    pub(crate) const ALL: [Self; 6] =
        [Self::Kafka, Self::Rabbitmq, Self::Mysql, Self::Mariadb, Self::Mongodb, Self::Postgres];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kafka => "Kafka",
            Self::Rabbitmq => "RabbitMQ",
            Self::Mysql => "MySQL",
            Self::Mariadb => "MariaDB",
            Self::Mongodb => "MongoDB",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// The variable with the URL of a user who may do everything, or with Kafka's bootstrap servers: read by us to use a running server,
    /// and by the tests.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Kafka => "ONCEBOX_TEST_KAFKA",
            Self::Rabbitmq => "ONCEBOX_TEST_RABBITMQ",
            Self::Mysql => "ONCEBOX_TEST_MYSQL",
            Self::Mariadb => "ONCEBOX_TEST_MARIADB",
            Self::Mongodb => "ONCEBOX_TEST_MONGODB",
            Self::Postgres => "ONCEBOX_TEST_POSTGRES",
        }
    }

    fn start(self, run_dir: &Path, starter: &Starter) -> Result<Server> {
        let began = Instant::now();
        let start = match self {
            Self::Kafka => kafka::start,
            Self::Rabbitmq => rabbitmq::start,
            Self::Mysql => mysql::start,
            Self::Mariadb => mariadb::start,
            Self::Mongodb => mongodb::start,
            Self::Postgres => postgres::start,
        };
        let name = self.name();
        let server = start(run_dir, starter)?;
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("xtask: {name} on 127.0.0.1:{}, started in {seconds:.1} s", server.port);
        Ok(server)
    }
}

/// A server that we started. Dropping it stops it.
#[derive(Debug)]
struct Server {
    daemon: Daemon,
    /// A process that it needs. Dropped, and stopped, after it.
    helper: Option<Daemon>,
    port: u16,
    /// What its variable is set to.
    value: String,
}

/// Servers that answer. Those that we started stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Services {
    // Dropped in this order: the servers before their directory.
    running: Vec<(Service, Source)>,
    dir: TempDir,
    mysql: Mysql,
    /// For tests that start servers of their own, each with its variable.
    programs: Vec<(&'static str, PathBuf)>,
}

#[derive(Debug)]
enum Source {
    Given(Given),
    Started(Server),
}

impl Source {
    fn value(&self) -> &str {
        match self {
            Self::Given(given) => given.value(),
            Self::Started(server) => &server.value,
        }
    }
}

impl Services {
    /// Starts those that the environment does not name, side by side. Call it from the main thread (see
    /// [`side_by_side`]).
    pub(crate) fn start(wanted: &[Service]) -> Result<Self> {
        // First the cheap checks of what was given, then the servers.
        let mut running = Vec::new();
        let mut missing = Vec::new();
        for &service in wanted {
            match Given::find(service)? {
                Some(given) => running.push((service, Source::Given(given))),
                None => missing.push(service),
            }
        }
        if wanted.contains(&Service::Mongodb) {
            mongod_program::given()?;
        }
        if wanted.contains(&Service::Rabbitmq) {
            rabbitmq::given_program()?;
        }
        let mut mysql = Mysql::NotAsked;
        if wanted.contains(&Service::Mysql) {
            mysql = Mysql::find()?;
        }
        if !mysql.is_there() {
            missing.retain(|service| *service != Service::Mysql);
        }

        let dir = tempfile::Builder::new().prefix("oncebox-").tempdir().context("no temporary directory")?;
        // Databases run as other users when we are root, and must be able to enter.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;

        let path = dir.path();
        let start = |service: Service| move |starter: &Starter| (service, service.start(path, starter));
        for (service, started) in side_by_side::run(missing.into_iter().map(start).collect()) {
            match started {
                Ok(server) => running.push((service, Source::Started(server))),
                Err(error) if service == Service::Mysql => {
                    // A signal ends the run; it does not make MySQL missing.
                    interrupt::check()?;
                    mysql = Mysql::Missing(format!("{error:#}"));
                }
                Err(error) => return Err(error.context(format!("no {} for the tests", service.name()))),
            }
        }
        if let Mysql::Missing(_) = mysql {
            eprintln!("xtask: {mysql}");
        }
        // Also when a running server was given: a test does not end that one.
        let mut programs = Vec::new();
        if wanted.contains(&Service::Kafka) {
            programs.extend(kafka::programs().context("no Kafka for the tests to start")?);
        }
        if wanted.contains(&Service::Mongodb) {
            let mongod = mongod_program::get().context("no mongod for the tests")?;
            programs.push((mongod_program::VARIABLE, mongod.to_owned()));
        }
        // Who wants everything tests the dashboard, too.
        if Service::ALL.iter().all(|service| wanted.contains(service)) {
            programs.push((browser::VARIABLE, browser::driver().context("no browser for the tests")?));
            programs.push((axe::VARIABLE, axe::script().context("no accessibility engine for the tests")?));
        }
        if wanted.contains(&Service::Rabbitmq) {
            let server = rabbitmq::program().context("no rabbitmq-server for the tests")?;
            programs.push((rabbitmq::PROGRAM_VARIABLE, server));
        }
        Ok(Self { running, dir, mysql, programs })
    }

    /// What became of MySQL.
    pub(crate) fn mysql(&self) -> &Mysql {
        &self.mysql
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

    /// What the variable of a running service is set to.
    pub(crate) fn value(&self, service: Service) -> Option<&str> {
        self.running.iter().find(|(one, _)| *one == service).map(|(_, source)| source.value())
    }

    /// The environment for a process that uses the services.
    pub(crate) fn env(&self) -> Vec<(&'static str, String)> {
        let servers =
            self.running.iter().map(|(service, source)| (service.variable(), source.value().to_owned()));
        let programs = self.programs.iter().map(|(variable, path)| (*variable, path.display().to_string()));
        servers.chain(programs).chain([(DIR, self.dir().display().to_string())]).collect()
    }

    /// Shell lines for another terminal. What came from the environment is not repeated: it may hold a
    /// password.
    pub(crate) fn exports(&self) -> String {
        let line = |(service, source): &(Service, Source)| match source {
            Source::Started(server) => format!("export {}={}\n", service.variable(), server.value),
            Source::Given(_) => format!("# {} is already set\n", service.variable()),
        };
        let program = |(variable, path): &(&str, PathBuf)| format!("export {variable}={}\n", path.display());
        self.running.iter().map(line).chain(self.programs.iter().map(program)).collect()
    }

    /// An error when a server that we started has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        for (_, source) in &mut self.running {
            if let Source::Started(server) = source {
                server.daemon.check_alive()?;
                server.helper.as_mut().map_or(Ok(()), Daemon::check_alive)?;
            }
        }
        Ok(())
    }
}
