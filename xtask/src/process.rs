//! Child processes that never outlive us: commands that end by themselves, and daemons that we stop.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::interrupt;
use crate::services::ports::PortTaken;
use crate::side_by_side::Starter;

/// How often something that is waited for is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(50);
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus> {
    let mut group = Group::spawn(command)?;
    loop {
        if let Some(status) = group.ended()? {
            return Ok(status);
        }
        interrupt::check()?;
        thread::sleep(POLL);
    }
}

/// A command that ends by itself, in a process group of its own. Dropping it stops the whole group, which reaches the test binaries
/// that cargo started.
#[derive(Debug)]
pub(crate) struct Group {
    program: String,
    child: Child,
}

impl Group {
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        let child = child.with_context(|| format!("cannot run {program}"))?;
        Ok(Self { program, child })
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        match pid(&self.child) {
            Ok(group) => {
                let signal = |signal| move || killpg(group, signal);
                stop(&mut self.child, &self.program, signal(Signal::SIGTERM), signal(Signal::SIGKILL));
            }
            Err(error) => eprintln!("xtask: cannot stop {}: {error:#}", self.program),
        }
    }
}

/// Like [`run`], with everything the command prints in `log`; a failure shows the end of it.
pub(crate) fn run_logged(name: &str, command: &mut Command, log: &Path) -> Result<()> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = run(command.stdout(file.try_clone()?).stderr(file))?;
    if !status.success() {
        bail!("{name} failed ({status}).\n{}", tail(log));
    }
    Ok(())
}

/// A server that we started. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: &'static str,
    child: Child,
    stop_with: Signal,
    log: PathBuf,
}

impl Daemon {
    /// Starts a command made by [`bound_to_us`]. Its own process group keeps the terminal's Ctrl-C away from
    /// it: the tests that use it stop first.
    pub(crate) fn spawn(
        starter: &Starter,
        name: &'static str,
        mut command: Command,
        stop_with: Signal,
        log: &Path,
    ) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let child = starter.spawn(command).with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, stop_with, log: log.to_owned() })
    }

    /// The process id of the server itself.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has printed this.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        fs::read(&self.log).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
    }

    /// An error when it is not running any more.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let message = format!("{} ended by itself ({status}).\n{}", self.name, tail(&self.log));
        // As the system says it, and as Erlang does.
        if self.has_logged("Address already in use") || self.has_logged("eaddrinuse") {
            return Err(anyhow::Error::new(PortTaken).context(message));
        }
        bail!(message)
    }

    /// Waits until `ready`; fails early when the process ends.
    pub(crate) fn wait_until(&mut self, limit: Duration, mut ready: impl FnMut(&Self) -> bool) -> Result<()> {
        let start = Instant::now();
        loop {
            interrupt::check()?;
            self.check_alive()?;
            if ready(self) {
                return Ok(());
            }
            if start.elapsed() > limit {
                bail!("{} was not ready after {} s.\n{}", self.name, limit.as_secs(), tail(&self.log));
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let (name, stop_with) = (self.name, self.stop_with);
        match pid(&self.child) {
            Ok(pid) => {
                stop(&mut self.child, name, || kill(pid, stop_with), || kill(pid, Signal::SIGKILL));
            }
            Err(error) => eprintln!("xtask: cannot stop {name}: {error:#}"),
        }
    }
}

/// A command for a program that the kernel signals when we are killed without a chance to clean up, where
/// `setpriv` can arrange that. `setpriv` replaces itself by the program, so the process id is the program's.
///
/// The kernel looks at the thread that starts it, so a [`Starter`] starts it, on the main thread.
pub(crate) fn bound_to_us(program: impl AsRef<OsStr>, signal: Signal) -> Command {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    let supported = *SUPPORTED.get_or_init(|| {
        Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    if !supported {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal.as_str(), "--"]).arg(program);
    command
}

/// The last lines of a log, indented, for an error message.
pub(crate) fn tail(log: &Path) -> String {
    const LINES: usize = 20;
    let text = match fs::read(log) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return format!("(its log {} cannot be read: {error})", log.display()),
    };
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    if last.is_empty() {
        return "It printed nothing.".to_owned();
    }
    format!("The end of its log:\n  {}", last.join("\n  "))
}

fn pid(child: &Child) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(child.id())?))
}

/// Ends a child, by force after [`STOP_LIMIT`]. Only this process reaps the child, so its id cannot belong to
/// another process as long as `try_wait` has not returned a status.
fn stop(
    child: &mut Child,
    name: &str,
    politely: impl Fn() -> nix::Result<()>,
    by_force: impl Fn() -> nix::Result<()>,
) {
    let gone = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
    if gone(child) {
        return;
    }
    if let Err(error) = politely() {
        eprintln!("xtask: cannot signal {name}: {error}");
    }
    let start = Instant::now();
    while start.elapsed() < STOP_LIMIT {
        if gone(child) {
            return;
        }
        thread::sleep(POLL);
    }
    eprintln!("xtask: {name} did not stop within {} s, killing it", STOP_LIMIT.as_secs());
    if let Err(error) = by_force().and_then(|()| child.wait().map(drop).map_err(|_| nix::Error::ECHILD)) {
        eprintln!("xtask: cannot kill {name}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side_by_side;

    #[test]
    fn tail_keeps_the_last_lines_only() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let log = dir.path().join("log");
        let text: String = (1..=30).map(|n| format!("line {n}\n")).collect();
        fs::write(&log, text).expect("a log");
        let shown = tail(&log);
        assert!(shown.contains("line 30") && shown.contains("line 11"), "{shown}");
        assert!(!shown.contains("line 10\n"), "{shown}");
    }

    fn daemon(name: &'static str, command: Command, log: &Path) -> Daemon {
        let spawn = |starter: &Starter| Daemon::spawn(starter, name, command, Signal::SIGTERM, log);
        side_by_side::run(vec![spawn]).remove(0).expect("it starts")
    }

    #[test]
    fn dropping_a_daemon_ends_its_process() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut command = bound_to_us("sleep", Signal::SIGTERM);
        command.arg("600");
        let daemon = daemon("sleep", command, &dir.path().join("log"));
        let pid = pid(&daemon.child).expect("a process id");
        assert!(kill(pid, None).is_ok());
        drop(daemon);
        assert!(kill(pid, None).is_err());
    }

    #[test]
    fn dropping_a_group_ends_what_its_command_has_started() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $! > new; mv new id; wait"]).current_dir(dir.path());
        let group = Group::spawn(&mut command).expect("it starts");
        let id = loop {
            if let Ok(id) = fs::read_to_string(dir.path().join("id")) {
                break id.trim().to_owned();
            }
            thread::sleep(POLL);
        };
        // One that has ended and that nobody has asked for yet has no command line any more.
        let runs = || fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep"));
        assert!(runs());
        drop(group);
        let deadline = Instant::now() + Duration::from_secs(60);
        while runs() {
            assert!(Instant::now() < deadline, "it still runs");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn a_daemon_that_dies_is_reported_with_its_log() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no luck; exit 3"]);
        let mut daemon = daemon("it", command, &dir.path().join("log"));
        let error = daemon.wait_until(Duration::from_secs(10), |_| false).expect_err("it ends");
        let message = format!("{error:#}");
        assert!(message.contains("exit status: 3") && message.contains("no luck"), "{message}");
    }
}
