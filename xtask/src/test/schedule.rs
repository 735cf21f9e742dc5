//! Which suites begin first, and how they share the machine: most of them wait for servers most of the time, some keep every core
//! busy.

use std::collections::VecDeque;
use std::env;
use std::num::NonZero;
use std::process::Command;
use std::thread::available_parallelism;

use super::beside::{Job, Queue};
use super::suites::Suite;

/// Suites at once, besides one of those that compute.
const AT_ONCE: usize = 2;

/// Those that take longest, the longest first: whatever begins last should be short. They wait for servers most of the time, so that
/// more tests than there are cores run at once.
const LONGEST: [&str; 5] = [
    "oncebox-cli --test e2e",
    "oncebox-mysql --test on_mysql",
    "oncebox-mongodb --test on_mongodb",
    "oncebox-postgres --test conformance",
    "oncebox-mysql --test on_mariadb",
];

/// Those that compute, or compile. One at a time, and behind all others, which have deadlines to keep.
const COMPUTING: [&str; 3] = [
    "oncebox-sqlite --test compile_errors",
    "oncebox-simulation --test histories",
    "oncebox-simulation --test same_twice",
];

/// Both queues. `computing` are jobs that are no suites.
pub(crate) fn queues(suites: &[Suite], env: &[(&'static str, String)], computing: Vec<Job>) -> Vec<Queue> {
    let job = |suite: &Suite| {
        let mut command = suite.command();
        command.envs(env.iter().cloned());
        Job { name: suite.name.clone(), command }
    };
    let (compute, mut others): (Vec<_>, Vec<_>) =
        suites.iter().partition(|suite| COMPUTING.contains(&suite.name.as_str()));
    let rank = |name: &str| LONGEST.iter().position(|long| *long == name);
    others.sort_by_key(|suite| rank(&suite.name).unwrap_or(LONGEST.len()));
    let mut others: VecDeque<Job> = others.into_iter().map(job).collect();
    for long in others.iter_mut().filter(|job| rank(&job.name).is_some()) {
        more_threads(&mut long.command);
    }
    let compute = compute.into_iter().map(job).chain(computing).map(behind_others).collect();
    vec![Queue { jobs: others, at_once: AT_ONCE }, Queue { jobs: compute, at_once: 1 }]
}

/// Whoever has chosen a number is left alone.
fn more_threads(command: &mut Command) {
    const VARIABLE: &str = "RUST_TEST_THREADS";
    if env::var_os(VARIABLE).is_none() {
        let cores = available_parallelism().map_or(1, NonZero::get);
        command.env(VARIABLE, (2 * cores).to_string());
    }
}

fn behind_others(Job { name, command }: Job) -> Job {
    let mut nice = Command::new("nice");
    nice.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        nice.current_dir(dir);
    }
    Job { name, command: nice }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn suite(name: &str) -> Suite {
        Suite::new(name, "/w/program", "/w/package")
    }

    fn names(queue: &Queue) -> Vec<&str> {
        queue.jobs.iter().map(|job| job.name.as_str()).collect()
    }

    #[test]
    fn the_longest_come_first_and_those_that_compute_have_a_queue_of_their_own() {
        let order = ["a --lib", LONGEST[1], COMPUTING[0], "b --lib", LONGEST[0]];
        let doc = Job { name: "--doc".to_owned(), command: Command::new("cargo") };
        let queues = queues(&order.map(suite), &[], vec![doc]);
        let [wait, compute] = &queues[..] else { panic!("{queues:?}") };
        assert_eq!(names(wait), [LONGEST[0], LONGEST[1], "a --lib", "b --lib"]);
        assert_eq!(names(compute), [COMPUTING[0], "--doc"]);
        assert_eq!((wait.at_once, compute.at_once), (AT_ONCE, 1));
    }

    #[test]
    fn behind_others_everything_else_stays_the_same() {
        let queues = queues(&[suite(COMPUTING[0])], &[("ONCEBOX_TEST_X", "y".to_owned())], Vec::new());
        let command = &queues[1].jobs[0].command;
        assert_eq!(command.get_program(), "nice");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["/w/program"]);
        assert_eq!(command.get_current_dir(), Some(Path::new("/w/package")));
        let set: Vec<_> = command.get_envs().filter_map(|(name, value)| Some((name, value?))).collect();
        let expected = [("CARGO_MANIFEST_DIR", "/w/package"), ("ONCEBOX_TEST_X", "y")];
        assert_eq!(set, expected.map(|(name, value)| (name.as_ref(), value.as_ref())));
    }

    /// A suite with another name would begin anywhere, silently.
    #[test]
    fn the_suites_that_are_named_are_there() {
        for name in LONGEST.into_iter().chain(COMPUTING) {
            let (package, target) = name.split_once(" --test ").expect("a test target");
            let folder = package.strip_prefix("oncebox-").expect("one of our packages");
            let tests = crate::cargo::workspace().join("crates").join(folder).join("tests");
            let there = [format!("{target}.rs"), format!("{target}/main.rs")];
            assert!(there.iter().any(|file| tests.join(file).exists()), "{name}");
        }
    }
}
