//! Several servers started at once, each in a thread of its own.
//!
//! The kernel ends a daemon together with the thread that started its process ([`crate::process::bound_to_us`]), so
//! those threads do not start processes themselves: they ask the caller's thread, which waits for all of them.

use std::io;
use std::panic::resume_unwind;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::thread;

/// Starts processes that outlive the thread that asks for them.
#[derive(Debug)]
pub(crate) struct Starter(Sender<Request>);

struct Request {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

impl Starter {
    /// Like [`Command::spawn`].
    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        let (answer, answered) = mpsc::channel();
        let gone = || io::Error::other("nobody is left to start processes");
        self.0.send(Request { command, answer }).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

/// Runs the jobs side by side and waits for all of them. Their answers have the order of the jobs. Call it from the
/// main thread, which lives as long as we do.
pub(crate) fn run<T: Send>(jobs: Vec<impl FnOnce(&Starter) -> T + Send>) -> Vec<T> {
    let (sender, requests) = mpsc::channel::<Request>();
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(jobs.len());
        for job in jobs {
            let starter = Starter(sender.clone());
            // The starter goes away with the job: the loop below ends with the last of them.
            threads.push(scope.spawn(move || job(&starter)));
        }
        drop(sender);
        for Request { mut command, answer } in requests {
            // Whoever asked waits for the answer.
            drop(answer.send(command.spawn()));
        }
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_in_the_order_of_the_jobs() {
        let job = |text: &'static str| {
            move |starter: &Starter| {
                let mut command = Command::new("echo");
                command.arg(text).stdout(std::process::Stdio::piped());
                let output = starter.spawn(command).and_then(Child::wait_with_output).expect("echo");
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            }
        };
        assert_eq!(run(vec![job("a"), job("b"), job("c")]), ["a", "b", "c"]);
    }

    #[test]
    fn a_process_stays_when_the_thread_that_asked_for_it_has_ended() {
        let mut children = run(vec![|starter: &Starter| {
            let mut command = crate::process::bound_to_us("sleep", nix::sys::signal::Signal::SIGKILL);
            command.arg("600");
            let child = starter.spawn(command).expect("sleep");
            // It is bound as soon as it is itself.
            let name = format!("/proc/{}/comm", child.id());
            while std::fs::read_to_string(&name).is_ok_and(|name| name.trim() != "sleep") {
                thread::yield_now();
            }
            child
        }]);
        let child = &mut children[0];
        // A process that was bound to the thread would go away some time after it.
        thread::sleep(std::time::Duration::from_millis(200));
        assert!(child.try_wait().expect("a child").is_none(), "it ended with the thread");
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }

    #[test]
    fn a_program_that_is_not_there() {
        let errors = run(vec![|starter: &Starter| starter.spawn(Command::new("/no/such/program")).is_err()]);
        assert_eq!(errors, [true]);
    }
}
