//! Which tests run beside each other on a MariaDB or a MySQL: all of them, but those that change the server itself.

use std::fs::File;
use std::path::PathBuf;

use super::server::{self, execute_at_mysql};
use super::{Database, Kind};

/// Held as long as there is a database on the server.
pub(super) struct Beside {
    _lock: File,
    alone: bool,
}

impl Beside {
    /// Beside the databases of other tests.
    pub(super) fn others(kind: Kind) -> Option<Self> {
        Self::new(kind, false)
    }

    /// While no other test of this server runs, in any process.
    pub(super) fn nobody(kind: Kind) -> Option<Self> {
        Self::new(kind, true)
    }

    /// `None` where no test changes the server.
    fn new(kind: Kind, alone: bool) -> Option<Self> {
        if !matches!(kind, Kind::Mariadb | Kind::Mysql) {
            return None;
        }
        let folder = std::env::var_os("ONCEBOX_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = folder.join(format!("{}.lock", server::variable(kind)));
        let lock = File::options().create(true).truncate(false).write(true).open(path);
        let lock = lock.expect("a file to lock");
        if alone { lock.lock() } else { lock.lock_shared() }.expect("a lock");
        Some(Self { _lock: lock, alone })
    }
}

impl Database {
    /// Whether daemons may only read. On MariaDB and MySQL this holds for the whole server: there the test has to be alone.
    pub(crate) async fn set_read_only(&self, on: bool) {
        if self.kind == Kind::Postgres {
            self.alter(&format!("SET default_transaction_read_only = {on}")).await;
            self.terminate_daemons().await;
        } else {
            assert!(self.is_alone(), "others would be read-only as well");
            execute_at_mysql(self.kind, &format!("SET GLOBAL read_only = {on}")).await;
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.alone)
    }
}
