//! Whom a server runs as: those of databases refuse to be root, or should.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use nix::unistd::{Uid, User};

/// The user of a server.
#[derive(Debug)]
pub(super) enum Account {
    Ourselves,
    Other(User),
}

impl Account {
    /// Root gives `home` to the first of the users that exists.
    pub(super) fn choose(server: &str, users: &[&str], home: &Path) -> Result<Self> {
        if !Uid::effective().is_root() {
            return Ok(Self::Ourselves);
        }
        let mut found = None;
        for name in users {
            found = found.or(User::from_name(name)?);
        }
        let user = found.with_context(|| {
            let users = users.join("` or `");
            format!(
                "{server} does not run as root, and there is no user `{users}` to run it as: create one, or run the \
                 tests as another user"
            )
        })?;
        if let Some(closed) = home.ancestors().skip(1).find(|dir| !anyone_may_enter(dir)) {
            bail!(
                "{server} runs as the user `{}`, who may not enter {}: set TMPDIR to a directory that everyone may \
                 enter, such as /tmp",
                user.name,
                closed.display()
            );
        }
        chown(home, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        Ok(Self::Other(user))
    }

    /// The command as this user, from a directory that the user may enter.
    ///
    /// A server that changed its user by itself would lose the bond of [`crate::process::bound_to_us`].
    pub(super) fn apply(&self, mut command: Command, home: &Path) -> Command {
        command.current_dir(home);
        if let Self::Other(user) = self {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

fn anyone_may_enter(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|meta| meta.mode() & 0o001 != 0)
}
