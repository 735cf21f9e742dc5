//! A purge pass on a SQLite file in particular.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oncebox_core::clock::Clock;
use oncebox_core::error::BoxError;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Claim, PassEnd, Purge, PurgePass, PurgeProgress, Purged, Retention, Store};
use oncebox_sqlite::SqliteStore;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Executor, SqliteConnection};
use tokio_util::sync::CancellationToken;

type TestResult = Result<(), BoxError>;

const DAY: Duration = Duration::from_secs(86_400);
const RECEIPTS: u64 = 10_000;

struct File {
    store: SqliteStore,
    consumer: ConsumerName,
    directory: tempfile::TempDir,
}

impl File {
    /// Half of the receipts are two days old.
    async fn new() -> Result<Self, BoxError> {
        let directory = tempfile::tempdir()?;
        let store = SqliteStore::connect(&format!("sqlite://{}/app.db", directory.path().display())).await?;
        store.migrate().await?;
        let file = Self { store, consumer: ConsumerName::new("stock")?, directory };
        let names: Vec<String> = (0..RECEIPTS).map(|n| format!("m{n}")).collect();
        let mut claims = Vec::new();
        for name in &names {
            let key = ReceiptKey::of(&file.consumer, &Tenant::none(), &MessageId::new(name.as_str())?);
            claims.push(Claim { key, tenant: "", message_id: name, set: &[], fingerprint: None });
        }
        let claimed = file.store.claim(&file.consumer, &claims).await?;
        file.store.commit(claimed.txn, None).await?;
        let age = "UPDATE oncebox_inbox SET processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 days')
                   WHERE CAST(substr(message_id, 2) AS INTEGER) % 2 = 0";
        file.beside().await?.execute(age).await?;
        Ok(file)
    }

    async fn beside(&self) -> sqlx::Result<SqliteConnection> {
        SqliteConnectOptions::new().filename(self.directory.path().join("app.db")).connect().await
    }

    /// A pass, and its last report.
    async fn purge(&self, dry_run: bool, one_step: bool) -> Result<(Purged, PurgeProgress), BoxError> {
        let retention = [Retention { consumer: self.consumer.clone(), keep: DAY }];
        let (stop, last) = (CancellationToken::new(), Mutex::new(PurgeProgress::default()));
        let progress = |report| {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = report;
            if one_step {
                stop.cancel();
            }
        };
        let now_ms = Clock::system().now_ms();
        let pass = PurgePass { retention: &retention, now_ms, dry_run, stop: &stop, progress: &progress };
        let purged = self.store.purge(pass).await?;
        Ok((purged, last.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[tokio::test]
async fn a_pass_in_many_pieces_looks_at_each_receipt_once() -> TestResult {
    let file = File::new().await?;
    let (counted, whole) = file.purge(true, false).await?;
    assert_eq!((counted.receipts, whole.done, whole.total), (RECEIPTS / 2, RECEIPTS, RECEIPTS));
    let (mut receipts, mut last) = (0, PurgeProgress::default());
    let mut end = PassEnd::Stopped;
    while end == PassEnd::Stopped && last.done < 2 * RECEIPTS {
        let (purged, report) = file.purge(false, true).await?;
        (receipts, end) = (receipts + purged.receipts, purged.end);
        if end == PassEnd::Stopped {
            assert!(report.done > last.done, "{report:?} after {last:?}");
            last = report;
        }
    }
    assert_eq!(end, PassEnd::Finished);
    assert_eq!((receipts, last.done), (RECEIPTS / 2, RECEIPTS));
    Ok(())
}

#[tokio::test]
async fn a_lease_of_a_clock_that_was_ahead_is_not_waited_for() -> TestResult {
    let file = File::new().await?;
    for (leased_until, end) in [
        ("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+30 seconds')", PassEnd::Elsewhere),
        ("'2099-01-01T00:00:00.000Z'", PassEnd::Finished),
    ] {
        let lease = format!("UPDATE oncebox_purge SET owner = 'another', leased_until = {leased_until}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(lease)).execute(&mut file.beside().await?).await?;
        assert_eq!(file.purge(false, false).await?.0.end, end);
    }
    Ok(())
}
