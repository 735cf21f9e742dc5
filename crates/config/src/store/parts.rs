//! The URL of a database given in parts. None of them needs encoding.

use oncebox_core::secret::Secret;

use super::StoreKind;
use crate::reader::{Entry, Section};
use crate::url_text::encoded;

const KINDS: [(&str, StoreKind); 4] = [
    ("postgres", StoreKind::Postgres),
    ("mysql", StoreKind::Mysql),
    ("mariadb", StoreKind::Mysql),
    ("mongodb", StoreKind::Mongodb),
];

/// What `[store]` says instead of a `url`. Taken out of the section in any case, so that all of its keys are known there.
pub(super) struct Parts<'c, 'a> {
    kind: Option<Entry<'c, 'a>>,
    host: Option<Entry<'c, 'a>>,
    port: Option<Entry<'c, 'a>>,
    user: Option<Entry<'c, 'a>>,
    password: Option<Entry<'c, 'a>>,
    database: Option<Entry<'c, 'a>>,
    parameters: Option<Entry<'c, 'a>>,
}

impl<'c, 'a> Parts<'c, 'a> {
    pub(super) fn take(section: &mut Section<'c, 'a>) -> Self {
        Self {
            kind: section.optional("kind"),
            host: section.optional("host"),
            port: section.optional("port"),
            user: section.optional("user"),
            password: section.optional("password"),
            database: section.optional("database"),
            parameters: section.optional("parameters"),
        }
    }

    fn all(&self) -> [&Option<Entry<'c, 'a>>; 7] {
        let Self { kind, host, port, user, password, database, parameters } = self;
        [kind, host, port, user, password, database, parameters]
    }

    /// Whether none of them is there.
    pub(super) fn is_empty(&self) -> bool {
        self.all().into_iter().all(Option::is_none)
    }

    /// There is a `url` too.
    pub(super) fn refuse(&self) {
        for entry in self.all().into_iter().flatten() {
            entry.report("`url` says this already", "remove one of the two");
        }
    }

    /// The URL that they make together.
    pub(super) fn into_url(self, section: &Section<'_, '_>) -> Option<(Secret, StoreKind)> {
        let missing = |key: &str, fix: &str| section.report_key(key, "it is missing", fix);
        let kind = match &self.kind {
            Some(entry) => entry.choice(&KINDS),
            None => {
                missing("kind", "write which database it is: postgres, mysql, mariadb or mongodb");
                None
            }
        };
        let host = match &self.host {
            Some(entry) => entry.filled_text().and_then(|host| checked_host(entry, host)),
            None => {
                missing("host", "write where the database is, such as \"db.internal\"");
                None
            }
        };
        let port = self.port.as_ref().map(|entry| entry.integer(&(1..=65_535)));
        let user = self.user.as_ref().map(|entry| entry.filled_text());
        let password = self.password.as_ref().map(|entry| entry.text());
        if let (Some(entry), None) = (&self.password, &self.user) {
            entry.report("there is a password and no user", "add `user`");
        }
        let database = self.database.as_ref().map(|entry| entry.filled_text());
        if database.is_none() && kind.is_some_and(|kind| kind != StoreKind::Postgres) {
            missing("database", "write the name of the database");
        }
        let parameters = self.parameters.map(parameters);

        let kind = kind?;
        let scheme = match kind {
            StoreKind::Mongodb => "mongodb",
            StoreKind::Mysql => "mysql",
            StoreKind::Postgres | StoreKind::Sqlite => "postgres",
        };
        let mut url = format!("{scheme}://");
        if let Some(user) = user {
            url.push_str(&encoded(&user?, b""));
            if let Some(password) = password {
                url.push_str(&format!(":{}", encoded(&password?, b"")));
            }
            url.push('@');
        }
        url.push_str(&host?);
        if let Some(port) = port {
            url.push_str(&format!(":{}", port?));
        }
        url.push('/');
        if let Some(database) = database {
            url.push_str(&encoded(&database?, b""));
        }
        if let Some(parameters) = parameters {
            url.push_str(&parameters?);
        }
        Some((Secret::new(url), kind))
    }
}

/// A name, an address of version 4, or one of version 6, which is put in brackets.
fn checked_host(entry: &Entry<'_, '_>, host: String) -> Option<String> {
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some(format!("[{host}]"));
    }
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._[]".contains(&b) || b >= 0x80;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if bracketed || host.bytes().all(fits) {
        return Some(host);
    }
    entry.report(
        "this is not the name of one host",
        "write the name alone, with the port under `port`; several hosts, or a socket, need `url`",
    );
    None
}

fn parameters(entry: Entry<'_, '_>) -> Option<String> {
    let (mut query, mut good) = (String::new(), true);
    for (name, entry) in entry.into_section()?.into_entries() {
        let Some(value) = entry.scalar() else {
            good = false;
            continue;
        };
        let separator = if query.is_empty() { '?' } else { '&' };
        query.push_str(&format!("{separator}{}={}", encoded(&name, b""), encoded(&value, b"")));
    }
    good.then_some(query)
}
