//! Runs the `oncebox` command to its end.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// No command of ours takes this long; one that hangs must fail its test instead of the whole run.
const LIMIT: Duration = Duration::from_secs(120);

/// The binary under test, in this folder, without what the environment of the test might say to it.
pub(crate) fn oncebox(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).stdin(Stdio::null());
    for name in ["ONCEBOX_CONFIG", "ONCEBOX_LOG", "ONCEBOX_FAILPOINT", "NO_COLOR", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// Runs `oncebox` with these arguments.
    pub(crate) fn of(folder: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let mut command = oncebox(folder);
        command.args(arguments);
        Self::of_command(command)
    }

    /// Runs a command made by [`oncebox`].
    pub(crate) fn of_command(mut command: Command) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (out, err) = (folder.path().join("stdout"), folder.path().join("stderr"));
        let mut child = command
            .stdout(File::create(&out).expect("a file for stdout"))
            .stderr(File::create(&err).expect("a file for stderr"))
            .spawn()
            .expect("oncebox starts");
        let status = wait(&mut child, LIMIT).unwrap_or_else(|| {
            child.kill().ok();
            child.wait().ok();
            panic!("{command:?} did not end within {LIMIT:?}; stderr:\n{}", read(&err));
        });
        Self { code: status.code(), stdout: read(&out), stderr: read(&err) }
    }

    /// Fails unless the exit code is this one.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "exit code of\n{self}");
        self
    }

    /// stdout as one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("stdout is not a JSON document ({e}):\n{self}"))
    }

    /// Fails unless stderr contains all of these.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "stderr does not say {word:?}:\n{self}");
        }
        self
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {:?}\nstdout:\n{}\nstderr:\n{}", self.code, self.stdout, self.stderr)
    }
}

/// Waits for a process; `None` if it does not end in time.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("the process can be waited for") {
            return Some(status);
        }
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}
