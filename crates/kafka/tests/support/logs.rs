//! Remembers what the process has logged.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
pub struct Logs(Arc<Mutex<Vec<u8>>>);

impl Logs {
    /// One for the process; to be called before anything else installs a subscriber.
    pub fn install() -> Self {
        static INSTALLED: OnceLock<Logs> = OnceLock::new();
        let install = || {
            let logs = Self::default();
            let all = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_ansi(false);
            all.with_writer(logs.clone()).init();
            logs
        };
        INSTALLED.get_or_init(install).clone()
    }

    /// Whether there is a line with all of these texts.
    pub fn has_line(&self, texts: &[&str]) -> bool {
        !self.lines(texts).is_empty()
    }

    /// The lines with all of these texts.
    pub fn lines(&self, texts: &[&str]) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let all = String::from_utf8_lossy(&all);
        let has_all = |line: &&str| texts.iter().all(|text| line.contains(text));
        all.lines().filter(has_all).map(str::to_owned).collect()
    }
}

impl Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Logs {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
