//! A RabbitMQ of our own: one node, and the `epmd` with which nodes of Erlang find each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;

use super::account::Account;
use super::ports::{self, PortTaken};
use super::{Server, Service, given};
use crate::packages;
use crate::process::{Daemon, bound_to_us};
use crate::side_by_side::Starter;

/// Read by us to use a program that is there, and by the tests that start nodes of their own.
pub(super) const PROGRAM_VARIABLE: &str = "ONCEBOX_TEST_RABBITMQ_SERVER";

/// Debian's. What is on PATH there changes its user by itself, which would hide the node from us.
const DEBIAN: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const EPMD_LIMIT: Duration = Duration::from_secs(10);
const READY_LIMIT: Duration = Duration::from_secs(90);

/// Starts a node without data.
pub(super) fn start(run_dir: &Path, starter: &Starter) -> Result<Server> {
    let program = program()?;
    let epmd = packages::find_or_install(
        || packages::on_path("epmd"),
        "erlang-base",
        "Erlang's epmd (on PATH)",
        &instead(),
    )?;
    let home = run_dir.join("rabbitmq");
    fs::create_dir(&home)?;
    let account = Account::choose("RabbitMQ", &["rabbitmq"], &home)?;

    ports::with_free(|[port, nodes_port, epmd_port]| {
        let mut command = account.apply(bound_to_us(&epmd, Signal::SIGTERM), &home);
        command.args(["-address", "127.0.0.1", "-port", &epmd_port.to_string()]);
        let log = run_dir.join("epmd.log");
        let mut epmd = Daemon::spawn(starter, "epmd", command, Signal::SIGTERM, &log)?;
        // Where its port is taken it ends without a word.
        epmd.wait_until(EPMD_LIMIT, |_| ports::accepts(epmd_port)).context(PortTaken)?;

        let mut command = account.apply(bound_to_us(&program, Signal::SIGTERM), &home);
        environment(&mut command, &home, &Ports { port, nodes_port, epmd_port })?;
        let log = run_dir.join("rabbitmq.log");
        let mut daemon = Daemon::spawn(starter, "RabbitMQ", command, Signal::SIGTERM, &log)?;
        // The log comes first: another server could have taken the port.
        let started = |daemon: &Daemon| daemon.has_logged("Server startup complete");
        daemon.wait_until(READY_LIMIT, |daemon| started(daemon) && ports::accepts(port))?;
        epmd.check_alive().context(PortTaken)?;
        let value = format!("amqp://guest:guest@127.0.0.1:{port}/%2f");
        Ok(Server { daemon, helper: Some(epmd), port, value })
    })
}

struct Ports {
    port: u16,
    /// For other nodes, and for tools. Its default is 20,000 above the port, where there may be no port.
    nodes_port: u16,
    epmd_port: u16,
}

fn environment(command: &mut Command, home: &Path, ports: &Ports) -> Result<()> {
    // What the machine has in /etc/rabbitmq is not ours.
    let (config, plugins) = (home.join("rabbitmq.conf"), home.join("enabled_plugins"));
    fs::write(&config, "")?;
    fs::write(&plugins, "[].\n")?;
    command.env("RABBITMQ_CONF_ENV_FILE", "/dev/null").env("RABBITMQ_CONFIG_FILE", config);
    command.env("RABBITMQ_ENABLED_PLUGINS_FILE", plugins);
    // The secret that nodes share is written there.
    command.env("HOME", home);
    command.env("RABBITMQ_MNESIA_BASE", home.join("data")).env("RABBITMQ_LOG_BASE", home.join("log"));
    command.env("RABBITMQ_PID_FILE", home.join("pid")).env("RABBITMQ_LOGS", "-");
    command.env("RABBITMQ_NODENAME", "oncebox@localhost").env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
    command.env("RABBITMQ_NODE_PORT", ports.port.to_string());
    command.env("RABBITMQ_DIST_PORT", ports.nodes_port.to_string());
    command.env("ERL_EPMD_ADDRESS", "127.0.0.1").env("ERL_EPMD_PORT", ports.epmd_port.to_string());
    let erlang = "-noinput -kernel inet_dist_use_interface {127,0,0,1}";
    command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", erlang);
    // The script replaces itself by the node, so the process id is the node's.
    command.env("RUNNING_UNDER_SYSTEMD", "true");
    Ok(())
}

/// The one of the environment, of Debian, or of PATH.
pub(super) fn program() -> Result<PathBuf> {
    if let Some(program) = given_program()? {
        return Ok(program);
    }
    let debian = Path::new(DEBIAN);
    packages::find_or_install(
        || {
            let debian = packages::is_program(debian).then(|| debian.to_owned());
            debian.or_else(|| packages::on_path("rabbitmq-server"))
        },
        "rabbitmq-server",
        &format!("RabbitMQ ({DEBIAN}, or rabbitmq-server on PATH)"),
        &instead(),
    )
}

/// The one that the environment names, if it names one.
pub(super) fn given_program() -> Result<Option<PathBuf>> {
    let Some(program) = given::read(PROGRAM_VARIABLE)?.map(PathBuf::from) else { return Ok(None) };
    if !program.is_absolute() || !packages::is_program(&program) {
        bail!("{PROGRAM_VARIABLE} is not the absolute path of a program: {}", program.display());
    }
    Ok(Some(program))
}

fn instead() -> String {
    format!(", or set {} to the URL of a running server", Service::Rabbitmq.variable())
}
