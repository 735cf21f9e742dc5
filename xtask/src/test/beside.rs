//! Suites side by side: what each prints is kept until it has ended, and then shown in one piece.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::interrupt;
use crate::process::{self, Group, POLL};

/// Something to run, and what to call it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// A job that has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// With the names of the tests that failed, where it has told them.
    pub(crate) summary: String,
    /// All that it has printed, under its heading.
    pub(crate) shown: String,
}

/// Jobs in their order, and how many of them may run at once.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) at_once: usize,
}

/// Runs the queues side by side to the end of the last job: one that fails does not keep the others from being run. Their logs are
/// in `dir`, also while they run.
pub(crate) fn run(queues: Vec<Queue>, dir: &Path) -> Result<Vec<Failure>> {
    let mut queues: Vec<_> = queues.into_iter().map(|queue| (queue, Vec::<Running>::new())).collect();
    let mut failures = Vec::new();
    loop {
        for (queue, running) in &mut queues {
            while running.len() < queue.at_once
                && let Some(job) = queue.jobs.pop_front()
            {
                running.push(Running::start(job, dir)?);
            }
        }
        if queues.iter().all(|(_, running)| running.is_empty()) {
            return Ok(failures);
        }
        if let Err(interrupted) = interrupt::check() {
            for Running { name, log, .. } in queues.iter().flat_map(|(_, running)| running) {
                eprintln!("xtask: {name} was not done. {}", process::tail(log));
            }
            return Err(interrupted);
        }
        thread::sleep(POLL);
        for (_, running) in &mut queues {
            for at in (0..running.len()).rev() {
                if let Some(status) = running[at].group.ended()? {
                    failures.extend(running.swap_remove(at).end(status)?);
                }
            }
        }
    }
}

struct Running {
    name: String,
    group: Group,
    log: PathBuf,
    began: Instant,
}

impl Running {
    fn start(Job { name, mut command }: Job, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{}.log", name.replace(' ', "_")));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let group = Group::spawn(command.stdout(file.try_clone()?).stderr(file))?;
        Ok(Self { name, group, log, began: Instant::now() })
    }

    fn end(self, status: ExitStatus) -> Result<Option<Failure>> {
        let seconds = self.began.elapsed().as_secs_f64();
        let output = fs::read(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        let output = String::from_utf8_lossy(&output);
        let outcome = if status.success() { "passed".to_owned() } else { format!("FAILED ({status})") };
        let shown = format!("\n== {}: {outcome}, {seconds:.1} s\n{}\n", self.name, output.trim_end());
        print!("{shown}");
        let failure = || {
            let tests = failed_tests(&output).into_iter().map(|test| format!("\n    {test}"));
            Failure {
                summary: tests.fold(format!("{} ({status})", self.name), |all, test| all + &test),
                shown,
            }
        };
        Ok((!status.success()).then(failure))
    }
}

/// The names that the test harness has printed.
fn failed_tests(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(at_once: usize, scripts: &[&str], dir: &Path) -> Queue {
        let job = |(n, script): (usize, &&str)| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(dir);
            Job { name: format!("job {n}"), command }
        };
        Queue { jobs: scripts.iter().enumerate().map(job).collect(), at_once }
    }

    fn run_in(dir: &Path, at_once: usize, scripts: &[&str]) -> Vec<Failure> {
        run(vec![queue(at_once, scripts, dir)], dir).expect("they run")
    }

    /// Ends only when the other is there as well.
    fn meet(own: &str, other: &str) -> String {
        format!(
            "touch {own}; n=0; until [ -e {other} ]; do sleep 0.1; n=$((n+1)); [ $n -lt 600 ] || exit 1; done"
        )
    }

    #[test]
    fn jobs_run_side_by_side() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let failures = run_in(dir.path(), 2, &[&meet("a", "b"), &meet("b", "a")]);
        assert!(failures.is_empty(), "{failures:?}");
    }

    #[test]
    fn queues_run_side_by_side() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let queue_of = |script: &str| queue(1, &[script], dir.path());
        let logs = dir.path().join("logs");
        fs::create_dir(&logs).expect("a directory");
        let failures =
            run(vec![queue_of(&meet("a", "b")), queue_of(&meet("b", "a"))], &logs).expect("they run");
        assert!(failures.is_empty(), "{failures:?}");
    }

    #[test]
    fn no_more_at_once_than_asked_for_and_all_in_the_end() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let alone = "mkdir here || exit 1; sleep 0.1; rmdir here; echo >> done";
        let failures = run_in(dir.path(), 1, &[alone; 3]);
        assert!(failures.is_empty(), "{failures:?}");
        assert_eq!(fs::read(dir.path().join("done")).expect("what they did"), b"\n\n\n");
    }

    #[test]
    fn a_failure_is_told_with_its_tests_and_holds_up_nobody() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let fails = "echo 'test a::b ... ok'; echo 'test a::c ... FAILED' >&2; echo 'test src/x.rs - f (line 3) ... FAILED'; exit 101";
        let failures = run_in(dir.path(), 1, &[fails, "touch after"]);
        let [Failure { summary, shown }] = &failures[..] else { panic!("{failures:?}") };
        assert_eq!(summary, "job 0 (exit status: 101)\n    a::c\n    src/x.rs - f (line 3)");
        assert!(shown.starts_with("\n== job 0: FAILED (exit status: 101), "), "{shown}");
        assert!(
            shown.ends_with("a::b ... ok\ntest a::c ... FAILED\ntest src/x.rs - f (line 3) ... FAILED\n"),
            "{shown}"
        );
        assert!(dir.path().join("after").exists());
    }

    #[test]
    fn a_program_that_is_not_there() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let missing = Job { name: "missing".to_owned(), command: Command::new("/no/such/program") };
        let error =
            run(vec![Queue { jobs: [missing].into(), at_once: 1 }], dir.path()).expect_err("it is not there");
        assert!(format!("{error:#}").contains("/no/such/program"), "{error:#}");
    }
}
