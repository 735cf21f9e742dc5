//! A MongoDB of our own: a replica set of one member, because only a set has transactions.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use super::mongo_wire::{self, Value};
use super::{Server, mongod_program, ports};
use crate::process::{Daemon, bound_to_us};
use crate::side_by_side::Starter;

const SET: &str = "oncebox";
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Every collection is a file, and so is every index: it ends when it may open no more.
const MANY_FILES: &str = "ulimit -n \"$(ulimit -Hn)\"; exec \"$@\"";

/// Makes a data directory, starts its server, and makes a set of it.
pub(super) fn start(run_dir: &Path, starter: &Starter) -> Result<Server> {
    let program = mongod_program::get()?;
    let home = run_dir.join("mongodb");
    fs::create_dir(&home)?;

    ports::with_free(|[port]| {
        // The port is written into the set's configuration, so a new port needs new data.
        let data = home.join(format!("data-{port}"));
        fs::create_dir(&data)?;
        let mut command = bound_to_us("sh", Signal::SIGTERM);
        // The shell replaces itself by the program, so the process id is the program's.
        command.args(["-c", MANY_FILES, "sh"]).arg(program);
        options(&mut command, &data, port);
        command.current_dir(&home);
        let log = run_dir.join("mongodb.log");
        let mut daemon = Daemon::spawn(starter, "MongoDB", command, Signal::SIGTERM, &log)?;
        // The log comes first: another server could have taken the port.
        let listens = |daemon: &Daemon| daemon.has_logged("Waiting for connections");
        daemon.wait_until(READY_LIMIT, |daemon| listens(daemon) && ports::accepts(port))?;
        initiate(port).context("the replica set cannot be made")?;
        // The member elects itself.
        daemon.wait_until(READY_LIMIT, |_| is_primary(port))?;
        Ok(Server {
            daemon,
            helper: None,
            port,
            value: format!("mongodb://127.0.0.1:{port}/?replicaSet={SET}"),
        })
    })
}

fn options(command: &mut Command, data: &Path, port: u16) {
    command.args(["--replSet", SET, "--bind_ip", "127.0.0.1", "--nounixsocket"]);
    command.arg("--port").arg(port.to_string()).arg("--dbpath").arg(data);
    // Half of the machine's memory is the default.
    command.args(["--wiredTigerCacheSizeGB", "1"]);
    // What is dropped stays as open files for as long as somebody could ask for the data as they were. Five minutes is the default,
    // in which tests make and drop hundreds of databases.
    command.args(["--setParameter", "minSnapshotHistoryWindowInSeconds=20"]);
    // Tests wait for this when a process stands still. It is the shortest that `oncebox check` is content with.
    command.args(["--setParameter", "transactionLifetimeLimitSeconds=30"]);
}

fn initiate(port: u16) -> Result<()> {
    let member =
        Value::document([("_id", Value::Int(0)), ("host", Value::Text(format!("127.0.0.1:{port}")))]);
    let members = Value::Array(vec![member]);
    let set = Value::document([("_id", Value::Text(SET.to_owned())), ("members", members)]);
    mongo_wire::run(port, "replSetInitiate", set).map(drop)
}

fn is_primary(port: u16) -> bool {
    mongo_wire::run(port, "hello", Value::Int(1)).is_ok_and(|answer| answer.says("isWritablePrimary"))
}
