//! What can happen to a transaction in SQLite in particular.

use oncebox_core::clock::Clock;
use oncebox_core::error::BoxError;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{
    Advance, Check, Claim, Duplicates, ErrorClass, FindingLevel, Migrate, Ownership, PositionKey, Positions,
    Progress, Purge, PurgePass, Retention, Store,
};
use oncebox_sqlite::SqliteStore;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, SqliteConnection};
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

type TestResult = Result<(), BoxError>;

struct File {
    store: SqliteStore,
    consumer: ConsumerName,
    directory: tempfile::TempDir,
}

impl File {
    async fn new() -> Result<Self, BoxError> {
        let directory = tempfile::tempdir()?;
        let store = SqliteStore::connect(&format!("sqlite://{}/app.db", directory.path().display())).await?;
        store.migrate().await?;
        let file = Self { store, consumer: ConsumerName::new("stock")?, directory };
        file.beside().await?.execute("CREATE TABLE effects (id TEXT PRIMARY KEY)").await?;
        Ok(file)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("app.db")
    }

    async fn beside(&self) -> sqlx::Result<SqliteConnection> {
        SqliteConnectOptions::new().filename(self.path()).connect().await
    }

    async fn owner(&self) -> Result<Ownership, BoxError> {
        let key = PositionKey { consumer: self.consumer.clone(), topic: "orders".into(), partition: 0 };
        Ok(self.store.acquire(&key).await?)
    }

    /// Opens a transaction with a receipt in it, and its fate must be `expected`.
    async fn run(
        &self,
        handler: impl AsyncFnOnce(&mut SqliteConnection) -> TestResult,
    ) -> Result<bool, BoxError> {
        let owner = self.owner().await?;
        let id = MessageId::new("a")?;
        let key = ReceiptKey::of(&self.consumer, &Tenant::none(), &id);
        let claim = Claim { key, tenant: "", message_id: id.as_str(), set: &[], fingerprint: None };
        let mut claimed = self.store.claim(&self.consumer, &[claim]).await?;
        assert_eq!(claimed.fresh, [true]);
        handler(&mut claimed.txn).await?;
        let progress = Progress { next_offset: Some(1), ..Progress::default() };
        let advance = Advance {
            owner: &owner,
            progress,
            applied: 1,
            duplicates: Duplicates::default(),
            finished_attempt: None,
        };
        Ok(self.store.commit(claimed.txn, Some(advance)).await.is_ok())
    }

    /// Effects, receipts and the position.
    async fn state(&self) -> Result<(i64, i64, Option<i64>), BoxError> {
        let sql = "SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM oncebox_inbox),
                          (SELECT next_offset FROM oncebox_position)";
        Ok(sqlx::query_as(sql).fetch_one(&mut self.beside().await?).await?)
    }
}

async fn add(conn: &mut SqliteConnection, id: &str) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO effects VALUES (?1)").bind(id).execute(conn).await.map(|_| ())
}

#[tokio::test]
async fn a_transaction_that_sqlite_undid_cannot_commit() -> TestResult {
    let file = File::new().await?;
    let committed = file
        .run(async |conn| {
            add(conn, "a").await?;
            let undone =
                sqlx::query("INSERT OR ROLLBACK INTO effects VALUES ('a')").execute(&mut *conn).await;
            assert!(undone.is_err());
            // The handler does not care. From here on SQLite would commit every statement at once.
            assert!(add(conn, "b").await.is_err());
            Ok(())
        })
        .await?;
    assert!(!committed);
    assert_eq!(file.state().await?, (0, 0, None));

    assert!(file.run(async |conn| Ok(add(conn, "a").await?)).await?, "the store goes on");
    assert_eq!(file.state().await?, (1, 1, Some(1)));
    Ok(())
}

#[tokio::test]
async fn a_handler_cannot_end_the_transaction() -> TestResult {
    for end in ["COMMIT", "ROLLBACK", "END", "COMMIT; BEGIN IMMEDIATE", "ROLLBACK; BEGIN IMMEDIATE"] {
        let file = File::new().await?;
        let committed = file
            .run(async |conn| {
                add(conn, "a").await?;
                conn.execute(sqlx::raw_sql(end)).await.ok();
                add(conn, "b").await.ok();
                Ok(())
            })
            .await?;
        assert!(!committed, "{end}");
        assert_eq!(file.state().await?, (0, 0, None), "{end}");
        assert!(file.run(async |conn| Ok(add(conn, "a").await?)).await?, "the store goes on after {end}");
    }
    Ok(())
}

#[tokio::test]
async fn a_handler_may_nest_transactions() -> TestResult {
    let file = File::new().await?;
    let committed = file
        .run(async |conn| {
            let mut kept = conn.begin().await?;
            add(&mut kept, "kept").await?;
            kept.commit().await?;
            let mut undone = conn.begin().await?;
            add(&mut undone, "undone").await?;
            undone.rollback().await?;
            let mut dropped = conn.begin().await?;
            add(&mut dropped, "dropped").await?;
            Ok(())
        })
        .await?;
    assert!(committed);
    assert_eq!(file.state().await?, (1, 1, Some(1)));

    let file = File::new().await?;
    let committed = file
        .run(async |conn| {
            #[expect(
                clippy::mem_forget,
                reason = "leaves a savepoint open, and a commit would only release that"
            )]
            std::mem::forget(conn.begin().await?);
            Ok(add(conn, "a").await?)
        })
        .await?;
    assert!(!committed);
    assert_eq!(file.state().await?, (0, 0, None));
    Ok(())
}

#[tokio::test]
async fn a_foreign_key_that_is_checked_at_the_commit_is_a_failure() -> TestResult {
    let file = File::new().await?;
    let sql = "CREATE TABLE line (effect TEXT REFERENCES effects (id) DEFERRABLE INITIALLY DEFERRED)";
    file.beside().await?.execute(sql).await?;
    let mut claimed = file.store.claim(&file.consumer, &[]).await?;
    claimed.txn.execute("INSERT INTO line VALUES ('none')").await?;
    let Err(error) = file.store.commit(claimed.txn, None).await else { return Err("it committed".into()) };
    assert_eq!(error.class, ErrorClass::Failed);
    assert!(file.run(async |conn| Ok(add(conn, "a").await?)).await?);
    Ok(())
}

#[tokio::test]
async fn trouble_of_the_database_is_told_apart() -> TestResult {
    let file = File::new().await?;
    let mut claimed = file.store.claim(&file.consumer, &[]).await?;

    // Another process finds the file locked.
    let impatient = SqliteConnectOptions::new().filename(file.path()).busy_timeout(Duration::ZERO);
    let mut other = impatient.connect().await?;
    let Err(busy) = other.execute("INSERT INTO effects VALUES ('x')").await else {
        return Err("not busy".into());
    };
    assert_eq!(SqliteStore::classify(&busy), ErrorClass::Transient);

    // The disk is full.
    claimed.txn.execute("PRAGMA max_page_count = 1").await?;
    let large =
        sqlx::query("INSERT INTO effects VALUES (hex(zeroblob(100000)))").execute(&mut *claimed.txn).await;
    let Err(full) = large else { return Err("not full".into()) };
    assert_eq!(SqliteStore::classify(&full), ErrorClass::Environment);
    drop(claimed);

    // Nobody may write to it.
    let mut reader = SqliteConnectOptions::new().filename(file.path()).read_only(true).connect().await?;
    let Err(readonly) = reader.execute("INSERT INTO effects VALUES ('x')").await else {
        return Err("not read-only".into());
    };
    assert_eq!(SqliteStore::classify(&readonly), ErrorClass::Environment);

    // A handler may wrap the error on its way.
    let wrapped = std::io::Error::other(full);
    assert_eq!(SqliteStore::classify(&wrapped), ErrorClass::Environment);
    let own = std::io::Error::other("my own file is gone");
    assert_eq!(SqliteStore::classify(&own), ErrorClass::Failed);
    assert_eq!(SqliteStore::classify(&sqlx::Error::PoolTimedOut), ErrorClass::Away);
    assert_eq!(SqliteStore::classify(&sqlx::Error::RowNotFound), ErrorClass::Failed);
    Ok(())
}

#[tokio::test]
async fn a_missing_table_of_ours_is_no_fault_of_a_message() -> TestResult {
    let file = File::new().await?;
    let owner = file.owner().await?;
    file.beside().await?.execute("ALTER TABLE oncebox_position RENAME TO elsewhere").await?;
    let claimed = file.store.claim(&file.consumer, &[]).await?;
    let progress = Progress { next_offset: Some(1), ..Progress::default() };
    let advance = Advance {
        owner: &owner,
        progress,
        applied: 1,
        duplicates: Duplicates::default(),
        finished_attempt: None,
    };
    let Err(error) = file.store.commit(claimed.txn, Some(advance)).await else {
        return Err("it committed".into());
    };
    assert_eq!(error.class, ErrorClass::Environment);
    Ok(())
}

#[tokio::test]
async fn an_event_that_a_trigger_refuses_is_the_messages_fault_and_a_broken_trigger_is_not() -> TestResult {
    let file = File::new().await?;
    let trigger = "CREATE TRIGGER strict AFTER INSERT ON oncebox_outbox
                   BEGIN INSERT INTO effects SELECT json_extract(CAST(new.payload AS TEXT), '$.id'); END";
    file.beside().await?.execute(trigger).await?;
    let emit = async |payload: &'static str| -> Result<ErrorClass, BoxError> {
        let mut claimed = file.store.claim(&file.consumer, &[]).await?;
        let emitted = claimed.txn.emit(Event::to("orders").bytes(payload)).await;
        file.store.rollback(claimed.txn).await;
        let Err(error) = emitted else { return Err("it was written".into()) };
        Ok(SqliteStore::classify(&error))
    };
    assert_eq!(emit("{").await?, ErrorClass::Failed);
    let mut conn = file.beside().await?;
    conn.execute("PRAGMA legacy_alter_table = ON").await?;
    conn.execute("ALTER TABLE effects RENAME TO elsewhere").await?;
    assert_eq!(emit("{}").await?, ErrorClass::Environment);
    Ok(())
}

#[tokio::test]
async fn a_bare_claim_in_a_transaction_that_the_driver_does_not_know_of_is_accepted() -> TestResult {
    let file = File::new().await?;
    let mut conn = file.beside().await?;
    let id = MessageId::new("a")?;
    let key = ReceiptKey::of(&file.consumer, &Tenant::none(), &id);
    let claims = [Claim { key, tenant: "", message_id: "a", set: &[], fingerprint: None }];
    conn.execute("BEGIN IMMEDIATE").await?;
    assert_eq!(file.store.claim_within(&mut conn, &file.consumer, &claims).await?, [true]);
    conn.execute("ROLLBACK").await?;
    assert_eq!(file.state().await?, (0, 0, None));

    // SQLite has undone this one, and the driver has not noticed.
    let mut undone = conn.begin_with("BEGIN IMMEDIATE").await?;
    let conflict = undone.execute("INSERT OR ROLLBACK INTO effects VALUES ('x'), ('x')").await;
    assert!(conflict.is_err());
    assert!(file.store.claim_within(&mut undone, &file.consumer, &claims).await.is_err());
    drop(undone);
    assert_eq!(file.state().await?, (0, 0, None));
    Ok(())
}

#[tokio::test]
async fn urls_that_cannot_work_are_refused_with_a_reason() -> TestResult {
    for (url, reason) in [
        ("sqlite::memory:", "a database of its own"),
        ("sqlite://:memory:", "a database of its own"),
        ("sqlite://x.db?mode=memory", "a database of its own"),
        ("sqlite://x.db?mode=ro", "read-only"),
        ("sqlite://", "names no file"),
        ("postgres://x", "sqlite://"),
        ("sqlite:///no/such/directory/x.db", "/no/such/directory/x.db"),
    ] {
        let Err(error) = SqliteStore::connect(url).await else {
            return Err(format!("{url} was accepted").into());
        };
        assert!(error.to_string().contains(reason), "{url}: {error}");
        let code = if url.contains("no/such") { "away" } else { "failed" };
        assert_eq!((error.code(), error.is_transient()), (code, code == "away"), "{url}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_open_a_new_file_at_once() -> TestResult {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}/app.db", directory.path().display());
    let open = |url: String| async move {
        let store = SqliteStore::connect(&url).await?;
        store.migrate().await
    };
    let opening: Vec<_> = (0..12).map(|_| tokio::spawn(open(url.clone()))).collect();
    let mut applied = 0;
    for store in opening {
        applied += store.await??.len();
    }
    let all = SqliteStore::connect(&url).await?.migrations().await?.len();
    assert_eq!(applied, all, "each migration once");
    Ok(())
}

#[tokio::test]
async fn a_new_file_gives_space_back_and_an_old_one_keeps_its_ways() -> TestResult {
    let file = File::new().await?;
    let names: Vec<String> = (0..20_000).map(|n| format!("a-rather-long-message-id-{n}")).collect();
    let mut claims = Vec::new();
    for name in &names {
        let key = ReceiptKey::of(&file.consumer, &Tenant::none(), &MessageId::new(name.as_str())?);
        claims.push(Claim { key, tenant: "", message_id: name, set: &[], fingerprint: None });
    }
    let claimed = file.store.claim(&file.consumer, &claims).await?;
    file.store.commit(claimed.txn, None).await?;
    let pages = async || -> Result<i64, BoxError> {
        Ok(sqlx::query_scalar("PRAGMA page_count").fetch_one(&mut file.beside().await?).await?)
    };
    let before = pages().await?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let retention = [Retention { consumer: file.consumer.clone(), keep: Duration::ZERO }];
    let (stop, now_ms) = (CancellationToken::new(), Clock::system().now_ms());
    let pass = PurgePass { retention: &retention, now_ms, dry_run: false, stop: &stop, progress: &|_| {} };
    assert_eq!(file.store.purge(pass).await?.receipts, 20_000);
    assert!(pages().await? * 2 < before, "{before} pages shrank to {}", pages().await?);

    let path = file.directory.path().join("old.db");
    let options =
        SqliteConnectOptions::new().filename(&path).create_if_missing(true).pragma("auto_vacuum", "FULL");
    options.connect().await?.execute("CREATE TABLE mine (id)").await?;
    let store = SqliteStore::connect(&format!("sqlite://{}", path.display())).await?;
    store.migrate().await?;
    let mut conn = SqliteConnectOptions::new().filename(&path).connect().await?;
    let mode: i64 = sqlx::query_scalar("PRAGMA auto_vacuum").fetch_one(&mut conn).await?;
    assert_eq!(mode, 1);
    Ok(())
}

#[tokio::test]
async fn a_check_says_what_it_looked_at() -> TestResult {
    let file = File::new().await?;
    let findings = file.store.check(4 << 20).await?;
    let subjects: Vec<_> = findings.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(subjects, ["file", "version", "journal", "durability", "schema", "outbox"]);
    assert!(findings.iter().all(|finding| finding.level == FindingLevel::Ok), "{findings:?}");

    file.beside()
        .await?
        .execute("INSERT INTO oncebox_migrations (version, name) VALUES (99, 'later')")
        .await?;
    let findings = file.store.check(4 << 20).await?;
    assert_eq!(findings[4].level, FindingLevel::Error);
    assert!(findings[4].detail.contains("newer"), "{:?}", findings[4]);
    Ok(())
}
