//! A database of its own for each test: on PostgreSQL, on MariaDB, on MongoDB, or a SQLite file.

mod contents;
mod mongo;
mod pool;
mod server;
mod sessions;

use std::fs::File;
use std::path::Path;

use super::mongo_set::WithUsers;
use super::orders::{ON_HAND, SKUS};
use super::proxy::Proxy;
use mongo::Mongo;
use pool::Pool;
use server::{execute_at_mariadb, execute_at_postgres};
pub(crate) use sessions::Session;

/// The password in the URLs of MariaDB.
pub(crate) const PASSWORD: &str = "pw-canary-4711";

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mariadb,
    Mongodb,
    Postgres,
    Sqlite,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Postgres, Self::Mariadb, Self::Sqlite, Self::Mongodb];
    /// Those that speak SQL.
    pub(crate) const WITH_SQL: [Self; 3] = [Self::Postgres, Self::Mariadb, Self::Sqlite];
}

/// What the daemons work on, seen with an ordinary client.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    /// As it stands in `store.url`.
    pub(crate) url: String,
    name: String,
    /// On MariaDB daemons have a user of their own: there is no other way to tell who is who.
    user: String,
    pool: Pool,
    /// On MongoDB daemons come through here: connections are ended, and handlers held up, on the way.
    proxy: Option<Proxy>,
    /// On MariaDB.
    _beside_others: Option<File>,
}

impl Database {
    /// `options` are those of CREATE DATABASE.
    pub(crate) async fn create(kind: Kind, name: &str, folder: &Path, options: &str) -> Self {
        let user = format!("user_{name}");
        let beside_others = (kind == Kind::Mariadb).then(server::beside_others_at_mariadb);
        let mut proxy = None;
        let (url, pool) = match kind {
            Kind::Mongodb => {
                assert_eq!(options, "", "MongoDB makes databases without options");
                let server = mongo::url(name);
                let pool = Pool::Mongodb(Box::pin(Mongo::create(&server, name)).await);
                let proxy = proxy.insert(Proxy::before(&server).await);
                (mongo::through(&proxy.url(&server), &user), pool)
            }
            Kind::Mariadb => {
                execute_at_mariadb(&format!(
                    "CREATE DATABASE {name} CHARACTER SET utf8mb4 {options}; CREATE USER {user} IDENTIFIED BY '{PASSWORD}'; \
                     GRANT ALL ON {name}.* TO {user}"
                ))
                .await;
                let pool = Pool::mariadb(server::mariadb().database(name)).await;
                (server::mariadb_url(name, &user), pool)
            }
            Kind::Postgres => {
                execute_at_postgres(&format!("CREATE DATABASE {name} {options}")).await;
                let pool = Pool::postgres(server::postgres().database(name).application_name("e2e")).await;
                (server::postgres_url(name), pool)
            }
            Kind::Sqlite => {
                let file = folder.join("e2e.sqlite");
                (format!("sqlite://{}", file.display()), Pool::sqlite(&file).await)
            }
        };
        let database =
            Self { kind, url, name: name.to_owned(), user, pool, proxy, _beside_others: beside_others };
        if kind != Kind::Mongodb {
            database.create_tables().await;
        }
        database
    }

    /// A database on a set of the test's own, without a proxy: daemons follow the primary.
    pub(crate) async fn on_set(url: String, name: &str) -> Self {
        let pool = Pool::Mongodb(Box::pin(Mongo::create(&url, name)).await);
        Self {
            kind: Kind::Mongodb,
            url,
            name: name.to_owned(),
            user: String::new(),
            pool,
            proxy: None,
            _beside_others: None,
        }
    }

    /// A database that daemons enter as a user who may do nothing outside of it.
    pub(crate) async fn of_user(server: &WithUsers, name: &str) -> Self {
        let user = format!("user_{name}");
        let pool = Pool::Mongodb(Box::pin(Mongo::create(&server.url_of_root(name), name)).await);
        let url = server.user(name, &user, PASSWORD).await;
        Self {
            kind: Kind::Mongodb,
            url,
            name: name.to_owned(),
            user,
            pool,
            proxy: None,
            _beside_others: None,
        }
    }

    /// Nothing in the ledger is unique: an effect that comes twice is there twice.
    async fn create_tables(&self) {
        let (ascending, id, text) = match self.kind {
            // Ids are compared byte for byte; articles as this server compares texts.
            Kind::Mariadb => {
                ("BIGINT AUTO_INCREMENT PRIMARY KEY", "VARCHAR(512) COLLATE utf8mb4_bin", "VARCHAR(100)")
            }
            Kind::Postgres => ("BIGSERIAL PRIMARY KEY", "TEXT", "TEXT"),
            Kind::Sqlite => ("INTEGER PRIMARY KEY AUTOINCREMENT", "TEXT", "TEXT"),
            Kind::Mongodb => panic!("MongoDB has no tables"),
        };
        self.execute(&format!(
            "CREATE TABLE stock (sku {text} PRIMARY KEY, on_hand BIGINT NOT NULL CHECK (on_hand >= 0), \
             delivered BIGINT NOT NULL)"
        ))
        .await;
        self.execute(&format!(
            "CREATE TABLE ledger (n {ascending}, consumer {id} NOT NULL, message_id {id} NOT NULL, \
             sku {text} NOT NULL, qty BIGINT NOT NULL, seq BIGINT NOT NULL)"
        ))
        .await;
        for sku in 0..SKUS {
            self.deliver(&format!("sku-{sku}"), ON_HAND).await;
        }
    }

    /// More of an article, or of a new one.
    pub(crate) async fn deliver(&self, sku: &str, quantity: i64) {
        if let Pool::Mongodb(db) = &self.pool {
            return db.deliver(sku, quantity).await;
        }
        let more = format!(
            "UPDATE stock SET on_hand = on_hand + {quantity}, delivered = delivered + {quantity} WHERE sku = '{sku}'"
        );
        if self.execute(&more).await == 0 {
            let insert = "INSERT INTO stock (sku, on_hand, delivered) VALUES";
            self.execute(&format!("{insert} ('{sku}', {quantity}, {quantity})")).await;
        }
    }

    /// The URL with a password in it, which the server takes.
    pub(crate) async fn url_with_password(&self) -> String {
        match &self.pool {
            _ if self.url.contains(PASSWORD) => self.url.clone(),
            // It asks nobody, and takes the word of those who say who they are only if it knows them.
            Pool::Mongodb(db) => {
                db.create_user(&self.user, PASSWORD).await;
                self.url.replacen("://", &format!("://{}:{PASSWORD}@", self.user), 1)
            }
            // It takes any.
            _ => self.url.replacen('@', &format!(":{PASSWORD}@"), 1),
        }
    }

    /// Whether the daemon has made its tables.
    pub(crate) async fn is_migrated(&self) -> bool {
        self.has_table("oncebox_position").await
    }

    pub(crate) async fn has_table(&self, name: &str) -> bool {
        if let Pool::Mongodb(db) = &self.pool {
            return db.has_collection(name).await;
        }
        let found = match self.kind {
            Kind::Mariadb => format!(
                "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{name}'"
            ),
            Kind::Postgres => format!("SELECT CAST(COUNT(to_regclass('{name}')) AS BIGINT)"),
            Kind::Sqlite | Kind::Mongodb => {
                format!("SELECT COUNT(*) FROM sqlite_master WHERE name = '{name}'")
            }
        };
        self.number(&found).await > 0
    }

    pub(crate) async fn rename(&self, table: &str, to: &str) {
        if let Pool::Mongodb(db) = &self.pool {
            return db.rename(table, to).await;
        }
        self.execute(&format!("ALTER TABLE {table} RENAME TO {to}")).await;
    }

    /// Makes all receipts two hours older.
    pub(crate) async fn age_receipts(&self) {
        if let Pool::Mongodb(db) = &self.pool {
            return db.age_receipts().await;
        }
        self.execute(match self.kind {
            Kind::Mariadb => "UPDATE oncebox_inbox SET processed_at = processed_at - INTERVAL 2 HOUR",
            Kind::Postgres => "UPDATE oncebox_inbox SET processed_at = processed_at - interval '2 hours'",
            Kind::Sqlite | Kind::Mongodb => {
                "UPDATE oncebox_inbox SET processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', processed_at, '-2 hours')"
            }
        })
        .await;
    }

    /// Lets ten days pass for everything that our tables remember (PostgreSQL only).
    pub(crate) async fn ten_days_pass(&self) {
        self.execute("UPDATE oncebox_inbox SET processed_at = processed_at - interval '10 days'").await;
        self.execute("UPDATE oncebox_dead SET failed_at = failed_at - interval '10 days'").await;
        self.execute(
            "UPDATE oncebox_position SET caught_up_at = caught_up_at - interval '10 days', \
             updated_at = updated_at - interval '10 days'",
        )
        .await;
    }

    /// Makes a user that may do everything here without being a superuser, and puts it into a URL (PostgreSQL only).
    pub(crate) async fn become_user(&self, name: &str, url: &mut String) -> String {
        let role = format!("user_{name}");
        for sql in [
            format!("CREATE ROLE {role} LOGIN"),
            format!("GRANT ALL ON DATABASE {} TO {role}", self.name),
            format!("GRANT ALL ON SCHEMA public TO {role}"),
            format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"),
            format!("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"),
        ] {
            self.execute(&sql).await;
        }
        let (_, host) = url.split_once('@').expect("a URL with a user");
        *url = format!("postgres://{role}@{host}");
        role
    }

    /// Removes a user with everything that it owns (PostgreSQL only).
    pub(crate) async fn drop_user(&self, role: &str) {
        self.execute(&format!("DROP OWNED BY {role} CASCADE")).await;
        self.execute(&format!("DROP ROLE {role}")).await;
    }

    /// Removes the database; the folder of a SQLite file goes by itself.
    pub(crate) async fn drop(&self) {
        let Self { name, user, .. } = self;
        match self.kind {
            Kind::Mariadb => {
                // Whoever is in a transaction would hold it up.
                execute_at_mariadb(&format!("KILL USER {user}; DROP DATABASE {name}; DROP USER {user}"))
                    .await;
            }
            Kind::Postgres => {
                execute_at_postgres(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            }
            Kind::Mongodb => {
                // One on a set of the test's own goes with the set.
                if let (Pool::Mongodb(db), Some(_)) = (&self.pool, &self.proxy) {
                    db.drop().await;
                }
            }
            Kind::Sqlite => {}
        }
    }
}
