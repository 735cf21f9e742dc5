//! A folder with a configuration and a SQLite file, for tests that need no service.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tempfile::TempDir;

use super::command::Answer;
use super::daemon::Daemon;

/// The file is migrated. Both go when this is dropped.
pub(crate) struct Folder {
    folder: TempDir,
    pub(crate) pool: SqlitePool,
}

impl Folder {
    /// The configuration names the file `test.sqlite`.
    pub(crate) async fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), config);
        Answer::of(folder.path(), ["migrate"]).exits(0);
        let options = SqliteConnectOptions::new().filename(folder.path().join("test.sqlite"));
        let pool = SqlitePool::connect_with(options.busy_timeout(Duration::from_secs(30)));
        Self { folder, pool: pool.await.expect("the file") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Another configuration. Nobody sees half of it.
    pub(crate) fn write(&self, config: &str) {
        write(self.path(), config);
    }

    pub(crate) async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.expect(sql);
    }

    pub(crate) fn oncebox(&self, arguments: &[&str]) -> Answer {
        Answer::of(self.path(), arguments)
    }

    /// What a command says in JSON.
    pub(crate) fn json(&self, arguments: &[&str], code: i32) -> Value {
        self.oncebox(&[arguments, &["--output", "json"]].concat()).exits(code).json()
    }

    pub(crate) fn run(&self) -> Daemon {
        Daemon::start(self.path(), "daemon", &[], &[])
    }
}

fn write(folder: &Path, config: &str) {
    let new = folder.join("oncebox.toml.new");
    std::fs::write(&new, config).expect("a file");
    std::fs::rename(new, folder.join("oncebox.toml")).expect("a new name");
}
