//! Code as people write it by hand, and oncebox, on the same table at the same time.

use std::collections::BTreeMap;

use oncebox_core::store::{Claimed, Store, StoreResult};
use oncebox_postgres::PgStore;
use sqlx::{Connection, PgConnection};

use super::{Shop, adopt, claim, ids};

/// The ways in which the pattern is written.
#[derive(Debug, Clone, Copy)]
enum Old {
    OnConflict,
    CatchViolation,
    LookFirst,
}

const WAYS: [Old; 3] = [Old::OnConflict, Old::CatchViolation, Old::LookFirst];

const INSERT: &str = "INSERT INTO inventory_inbox (message_id) VALUES ($1)";

impl Old {
    /// Whether the message is to be applied. The transaction is open then, and closed otherwise.
    async fn begin(self, conn: &mut PgConnection, id: &str) -> sqlx::Result<bool> {
        sqlx::raw_sql("BEGIN").execute(&mut *conn).await?;
        let fresh = match self {
            Self::OnConflict => {
                let insert = "INSERT INTO inventory_inbox (message_id) VALUES ($1) ON CONFLICT DO NOTHING";
                sqlx::query(insert).bind(id).execute(&mut *conn).await?.rows_affected() == 1
            }
            Self::CatchViolation => insert(conn, id).await?,
            Self::LookFirst => {
                let look = "SELECT EXISTS (SELECT FROM inventory_inbox WHERE message_id = $1)";
                let seen: bool = sqlx::query_scalar(look).bind(id).fetch_one(&mut *conn).await?;
                !seen && insert(conn, id).await?
            }
        };
        if !fresh {
            sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
        }
        Ok(fresh)
    }

    async fn apply(self, conn: &mut PgConnection, id: &str) -> sqlx::Result<bool> {
        let fresh = self.begin(conn, id).await?;
        if fresh {
            effect(conn, id).await?;
            sqlx::raw_sql("COMMIT").execute(conn).await?;
        }
        Ok(fresh)
    }
}

/// False for a unique violation.
async fn insert(conn: &mut PgConnection, id: &str) -> sqlx::Result<bool> {
    match sqlx::query(INSERT).bind(id).execute(conn).await {
        Err(sqlx::Error::Database(e)) if e.is_unique_violation() => Ok(false),
        other => other.map(|_| true),
    }
}

async fn effect(conn: &mut PgConnection, id: &str) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO effects (id) VALUES ($1)").bind(id).execute(conn).await.map(|_| ())
}

/// What oncebox does with a batch.
async fn new_apply(store: &PgStore, batch: &[&str]) -> StoreResult<Vec<bool>> {
    let Claimed { mut txn, fresh, refused, .. } = claim(store, "stock", &ids(batch)).await?;
    assert_eq!(refused, []);
    for (id, _) in batch.iter().zip(&fresh).filter(|(_, fresh)| **fresh) {
        effect(&mut txn, id).await.unwrap();
    }
    store.commit(txn, None).await?;
    Ok(fresh)
}

async fn shop() -> Shop {
    let table =
        "CREATE TABLE inventory_inbox (message_id text PRIMARY KEY, processed_at timestamptz DEFAULT now())";
    Shop::new(table, adopt("inventory_inbox", "message_id").processed_at("processed_at").unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_second_skips() {
    for old in WAYS {
        let shop = shop().await;
        let mut conn = shop.connect().await;
        assert!(old.apply(&mut conn, "a").await.unwrap());
        assert_eq!(new_apply(&shop.store, &["a", "b"]).await.unwrap(), [false, true], "{old:?}");
        assert!(!old.apply(&mut conn, "b").await.unwrap(), "{old:?}");
        assert_eq!(
            shop.effects().await,
            BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 1)]),
            "{old:?}"
        );
    }
}

/// Waits until a statement of the database waits for another transaction.
async fn until_somebody_waits(shop: &Shop) {
    let waiting = "SELECT 'x' FROM pg_locks JOIN pg_stat_activity USING (pid) \
         WHERE datname = current_database() AND NOT granted AND locktype = 'transactionid'";
    while shop.texts(waiting).await.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oncebox_waits_for_the_old_code() {
    for old in WAYS {
        for (end, expected) in [("COMMIT", false), ("ROLLBACK", true)] {
            let shop = shop().await;
            let mut conn = shop.connect().await;
            assert!(old.begin(&mut conn, "a").await.unwrap());
            let store = shop.store.clone();
            let new = tokio::spawn(async move { new_apply(&store, &["a"]).await });
            until_somebody_waits(&shop).await;
            assert!(!new.is_finished());
            effect(&mut conn, "a").await.unwrap();
            sqlx::raw_sql(end).execute(&mut conn).await.unwrap();
            assert_eq!(new.await.unwrap().unwrap(), [expected], "{old:?} {end}");
            assert_eq!(shop.effects().await, BTreeMap::from([("a".to_owned(), 1)]), "{old:?} {end}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_code_waits_for_oncebox() {
    for old in WAYS {
        for commit in [true, false] {
            let shop = shop().await;
            let Claimed { mut txn, fresh, .. } = shop.claim("stock", &ids(&["a"])).await.unwrap();
            assert_eq!(fresh, [true]);
            effect(&mut txn, "a").await.unwrap();
            let mut conn = shop.connect().await;
            let waits = tokio::spawn(async move { old.apply(&mut conn, "a").await });
            until_somebody_waits(&shop).await;
            if commit {
                shop.store.commit(txn, None).await.unwrap();
            } else {
                shop.store.rollback(txn).await;
            }
            assert_eq!(waits.await.unwrap().unwrap(), !commit, "{old:?}");
            assert_eq!(shop.effects().await, BTreeMap::from([("a".to_owned(), 1)]), "{old:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_under_load_applies_each_message_once() {
    const MESSAGES: usize = 200;
    let shop = shop().await;
    let names: Vec<String> = (0..MESSAGES).map(|n| format!("order-{n}")).collect();
    let mut tasks = Vec::new();
    for (nth, old) in WAYS.into_iter().enumerate() {
        let (mut names, url) = (names.clone(), shop.database.url.clone());
        fastrand::Rng::with_seed(nth as u64).shuffle(&mut names);
        tasks.push(tokio::spawn(async move {
            let mut conn = PgConnection::connect(&url).await.unwrap();
            let mut applied = 0;
            for id in &names {
                applied += usize::from(old.apply(&mut conn, id).await.unwrap());
            }
            applied
        }));
    }
    for nth in 0..3 {
        let (mut names, store) = (names.clone(), shop.store.clone());
        fastrand::Rng::with_seed(100 + nth).shuffle(&mut names);
        tasks.push(tokio::spawn(async move {
            let mut applied = 0;
            for batch in names.chunks(20) {
                let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
                applied += new_apply(&store, &batch).await.unwrap().iter().filter(|fresh| **fresh).count();
            }
            applied
        }));
    }
    let mut applied = 0;
    for task in tasks {
        applied += task.await.unwrap();
    }
    let effects = shop.effects().await;
    assert_eq!((applied, effects.len()), (MESSAGES, MESSAGES));
    assert!(effects.values().all(|times| *times == 1), "{effects:?}");
}
