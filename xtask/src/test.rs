//! `cargo xtask test`: every test, against real services.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::services::Services;
use crate::{cargo, process, simulate};

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
    let test = test_args(&args.extra);

    // Before the services: a compile error should not wait for Kafka.
    if !args.extra.iter().any(|arg| arg == "--doc") {
        eprintln!("xtask: building the tests");
        let status = process::run(cargo_test().arg("--no-run").args(&test))?;
        if !status.success() {
            bail!("the tests do not build ({status})");
        }
    }

    if args.extra.is_empty() {
        simulate::in_tests()?;
    }

    let mut services = Services::start()?;
    if args.keep {
        services.keep_dir();
    }
    let status = process::run(cargo_test().args(&test).envs(services.env()))?;
    drop(services);
    if !status.success() {
        bail!("tests failed ({status}); what was started is stopped");
    }
    eprintln!(
        "xtask: every test passed, in {:.0} s; what was started is stopped",
        start.elapsed().as_secs_f64()
    );
    Ok(())
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

/// With `--workspace`, cargo ignores `--package`: leave it out when the caller has chosen.
fn test_args(extra: &[String]) -> Vec<String> {
    let to_cargo = extra.iter().take_while(|arg| *arg != "--");
    let chosen = to_cargo.into_iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    let scope = (!chosen).then(|| "--workspace".to_owned());
    let fixed = ["--features", "services", "--locked", "--profile", cargo::PROFILE].map(str::to_owned);
    scope.into_iter().chain(fixed).chain(extra.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::test_args;

    fn args(extra: &[&str]) -> String {
        test_args(&extra.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()).join(" ")
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
