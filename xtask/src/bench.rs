//! `cargo xtask bench`: the benchmark, against real services.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Result, bail};

use crate::services::{Service, Services};
use crate::{cargo, process};

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this part.
    #[arg(value_enum)]
    part: Option<Part>,
    /// Passed on to the benchmark, such as `inbox -- --rounds 5 --records 500000`.
    #[arg(last = true, value_name = "BENCH ARGS")]
    extra: Vec<String>,
}

/// The parts of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The inbox on PostgreSQL against one transaction per message written by hand.
    Inbox,
    /// The same on MariaDB.
    Mariadb,
    /// The same on MySQL, if it can be had.
    Mysql,
    /// The same on MongoDB.
    Mongodb,
    /// The inbox on PostgreSQL from a queue of RabbitMQ, against one transaction and one acknowledgement per message.
    Rabbitmq,
    /// Requests that change PostgreSQL, against a handler written by hand with one transaction per request.
    Http,
    /// Several partitions that update the same few rows.
    HotRows,
    /// An inbox beside a slow one in the same process.
    Neighbours,
    /// The relay against a bare producer.
    Relay,
    /// The dashboard over a PostgreSQL full of dead letters and receipts. Only if it is named: to fill it takes minutes and 5 GB.
    Dashboard,
}

/// Where the inbox is compared.
const SERVERS: [(Part, Service); 4] = [
    (Part::Inbox, Service::Postgres),
    (Part::Mariadb, Service::Mariadb),
    (Part::Mysql, Service::Mysql),
    (Part::Mongodb, Service::Mongodb),
];

/// What each part needs.
const NEEDS: [(Part, &[Service]); 10] = [
    (Part::Inbox, &[Service::Kafka, Service::Postgres]),
    (Part::Mariadb, &[Service::Kafka, Service::Mariadb]),
    (Part::Mysql, &[Service::Kafka, Service::Mysql]),
    (Part::Mongodb, &[Service::Kafka, Service::Mongodb]),
    (Part::Rabbitmq, &[Service::Rabbitmq, Service::Postgres]),
    (Part::Http, &[Service::Postgres]),
    (Part::HotRows, &[Service::Kafka, Service::Postgres]),
    (Part::Neighbours, &[Service::Kafka, Service::Postgres]),
    (Part::Relay, &[Service::Kafka, Service::Postgres]),
    (Part::Dashboard, &[Service::Postgres]),
];

/// Round trips between process and database that are compared, in microseconds.
const ROUND_TRIPS_US: [&str; 2] = ["0", "500"];

/// Builds in release mode, starts the services, compares, stops the services.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut build = cargo::command("build");
    // No package is named, so that the dependencies are built with the same features as for `cargo run --release`.
    build.args(["--release", "--locked", "--bin", "oncebox", "--bin", "oncebox-bench"]);
    if !process::run(&mut build)?.success() {
        bail!("the benchmark does not build");
    }
    let built = cargo::target_dir().join("release");
    let wanted = |part: Part| args.part.map_or(part != Part::Dashboard, |one| one == part);
    let needed: Vec<Service> = Service::ALL
        .into_iter()
        .filter(|service| NEEDS.iter().any(|(part, needed)| wanted(*part) && needed.contains(service)))
        .collect();
    let services = Services::start(&needed)?;
    let benchmark = |args: &[&OsStr], extra: &[String]| {
        let mut part = Command::new(built.join("oncebox-bench"));
        let status = process::run(part.args(args).args(extra).envs(services.env()))?;
        if !status.success() {
            bail!("the benchmark failed ({status})");
        }
        Ok(())
    };
    let daemon = built.join("oncebox");
    // What is passed on belongs to the inbox, on whatever server, unless another part was asked for alone.
    let of_inbox = |part: Part| SERVERS.iter().any(|(inbox, _)| *inbox == part);
    let extra = |part: Part| match args.part {
        Some(one) if one == part => &args.extra[..],
        None if of_inbox(part) => &args.extra[..],
        _ => &[],
    };
    for (part, service) in SERVERS.into_iter().filter(|(part, _)| wanted(*part)) {
        let Some(server) = services.value(service) else {
            println!("\n{}", services.mysql());
            continue;
        };
        println!("\n{}", service.name());
        for round_trip in ROUND_TRIPS_US {
            let compare =
                ["compare", "--round-trip-us", round_trip, "--server", server, "--daemon"].map(OsStr::new);
            benchmark(&[&compare[..], &[daemon.as_os_str()]].concat(), extra(part))?;
        }
    }
    if wanted(Part::Rabbitmq) {
        println!("\n{} and {}", Service::Rabbitmq.name(), Service::Postgres.name());
        let (queues, server) = (services.value(Service::Rabbitmq), services.value(Service::Postgres));
        for round_trip in ROUND_TRIPS_US {
            let places = ["--brokers", queues.unwrap_or_default(), "--server", server.unwrap_or_default()];
            let compare = ["compare", "--round-trip-us", round_trip, "--daemon"].map(OsStr::new);
            let args = [&compare[..], &[daemon.as_os_str()], &places.map(OsStr::new)].concat();
            benchmark(&args, extra(Part::Rabbitmq))?;
        }
    }
    if wanted(Part::Http) {
        let http = [OsStr::new("http"), OsStr::new("--daemon"), daemon.as_os_str()];
        benchmark(&http, extra(Part::Http))?;
    }
    if wanted(Part::HotRows) {
        let hot_rows = [OsStr::new("hot-rows"), OsStr::new("--daemon"), daemon.as_os_str()];
        benchmark(&hot_rows, extra(Part::HotRows))?;
    }
    if wanted(Part::Neighbours) {
        let neighbours = [OsStr::new("neighbours"), OsStr::new("--daemon"), daemon.as_os_str()];
        benchmark(&neighbours, extra(Part::Neighbours))?;
    }
    if wanted(Part::Relay) {
        benchmark(&[OsStr::new("relay")], extra(Part::Relay))?;
    }
    if wanted(Part::Dashboard) {
        let dashboard = [OsStr::new("dashboard"), OsStr::new("--daemon"), daemon.as_os_str()];
        benchmark(&dashboard, extra(Part::Dashboard))?;
    }
    Ok(())
}
