//! `cargo xtask test`: every test, against real services.

mod beside;
mod schedule;
mod suites;

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::services::{Mysql, Service, Services};
use crate::{cargo, process, simulate};
use beside::{Failure, Job};
use suites::Suite;

/// Arguments of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the directory with the servers' logs and data, and say where it is.
    #[arg(long)]
    keep: bool,
    /// Passed on to `cargo test`.
    #[arg(last = true, value_name = "CARGO TEST ARGS")]
    extra: Vec<String>,
}

/// Builds the tests, starts the services, runs the tests, stops the services.
pub(crate) fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    // Before the build: tests that need MySQL are not built without one, so that nobody takes them for passed.
    let found = Mysql::find()?;
    if !found.is_there() {
        eprintln!("xtask: {found}");
    }

    // Before the services: a compile error should not wait for Kafka.
    eprintln!("xtask: building the tests");
    let everything = args.extra.is_empty();
    let mut suites = Vec::new();
    if everything {
        suites = suites::build(&test_args(&[], found.is_there()))?;
    } else if !args.extra.iter().any(|arg| arg == "--doc") {
        let mut build = cargo_test();
        let status = process::run(build.arg("--no-run").args(test_args(&args.extra, found.is_there())))?;
        if !status.success() {
            bail!("the tests do not build ({status})");
        }
    }

    let mut services = Services::start(&Service::ALL)?;
    if args.keep {
        services.keep_dir();
    }
    // Once more: it may have been found, and not have started.
    let mysql = services.mysql().clone();
    let tests = test_args(&args.extra, mysql.is_there());
    let failures = if everything {
        if mysql.is_there() != found.is_there() {
            suites = suites::build(&tests)?;
        }
        run_all(&suites, tests, &services)?
    } else {
        let status = process::run(cargo_test().args(tests).envs(services.env()))?;
        let failure = || Failure { summary: format!("cargo test ({status})"), shown: String::new() };
        (!status.success()).then(failure).into_iter().collect()
    };
    drop(services);
    for Failure { shown, .. } in &failures {
        print!("{shown}");
    }
    eprintln!("xtask: {mysql}");
    if !failures.is_empty() {
        let summaries: Vec<_> = failures.into_iter().map(|failure| failure.summary).collect();
        bail!("what was started is stopped; tests failed:\n  {}", summaries.join("\n  "));
    }
    let seconds = start.elapsed().as_secs_f64();
    let every = if mysql.is_there() { "every test" } else { "every test but those for MySQL" };
    eprintln!("xtask: {every} passed, in {seconds:.0} s; what was started is stopped");
    Ok(())
}

/// Runs the suites, the examples in the documentation and the simulation, side by side.
fn run_all(suites: &[Suite], tests: Vec<String>, services: &Services) -> Result<Vec<Failure>> {
    let dir = services.dir().join("suites");
    fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut documentation = cargo_test();
    documentation.args(tests).args(["--doc", "--no-fail-fast"]).envs(services.env());
    let besides = vec![
        Job { name: "--doc".to_owned(), command: documentation },
        Job { name: "simulation".to_owned(), command: simulate::in_tests() },
    ];
    eprintln!("xtask: {} suites; until one has ended, what it prints is in {}", suites.len(), dir.display());
    beside::run(schedule::queues(suites, &services.env(), besides), &dir)
}

/// Builds where everything else is built, and leaves the programs elsewhere: the `oncebox` of the tests, with its fail points,
/// must not lie where people look for the one of `cargo build --release`.
fn cargo_test() -> Command {
    let target = cargo::target_dir();
    let mut command = cargo::command("test");
    command.arg("--config").arg(format!("build.build-dir={target:?}"));
    command.arg("--target-dir").arg(target.join("test"));
    command
}

/// With `--workspace`, cargo ignores `--package`: leave it out when the caller has chosen. A feature that no chosen package
/// has is an error.
fn test_args(extra: &[String], mysql: bool) -> Vec<String> {
    let to_cargo: Vec<&str> = extra.iter().map(String::as_str).take_while(|arg| *arg != "--").collect();
    let chosen = to_cargo.iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    let scope = (!chosen).then(|| "--workspace".to_owned());
    let needs_mysql = |arg: &&str| arg.ends_with("oncebox-mysql") || arg.ends_with("oncebox-cli");
    let for_mysql = mysql && (!chosen || to_cargo.iter().any(needs_mysql));
    let features = if for_mysql { "services,mysql-server" } else { "services" };
    let fixed = ["--features", features, "--locked", "--profile", cargo::PROFILE].map(str::to_owned);
    scope.into_iter().chain(fixed).chain(extra.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::test_args;

    fn args_with(mysql: bool, extra: &[&str]) -> String {
        test_args(&extra.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(), mysql).join(" ")
    }

    fn args(extra: &[&str]) -> String {
        args_with(false, extra)
    }

    #[test]
    fn the_tests_for_mysql_are_there_when_it_is() {
        let workspace = "--workspace --features services,mysql-server --locked --profile bench";
        assert_eq!(args_with(true, &[]), workspace);
        assert_eq!(args_with(true, &["--", "oncebox-mysql"]), format!("{workspace} -- oncebox-mysql"));
        for package in ["oncebox-mysql", "oncebox-cli"] {
            assert_eq!(
                args_with(true, &["-p", package]),
                format!("--features services,mysql-server --locked --profile bench -p {package}")
            );
        }
        assert_eq!(
            args_with(true, &["-poncebox-sqlite"]),
            "--features services --locked --profile bench -poncebox-sqlite"
        );
    }

    #[test]
    fn everything_is_the_default() {
        assert_eq!(args(&[]), "--workspace --features services --locked --profile bench");
    }

    #[test]
    fn a_chosen_package_is_respected() {
        assert_eq!(
            args(&["-p", "oncebox-postgres", "--", "--nocapture"]),
            "--features services --locked --profile bench -p oncebox-postgres -- --nocapture"
        );
    }

    #[test]
    fn arguments_of_the_test_binary_choose_no_package() {
        assert_eq!(
            args(&["--", "-plain"]),
            "--workspace --features services --locked --profile bench -- -plain"
        );
    }
}
