#![allow(clippy::all, missing_docs, clippy::unwrap_used)]
use oncebox_core::*;
use oncebox_sqlite::*;
use std::time::{Duration, Instant};
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let n: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    std::fs::remove_dir_all(&dir).ok();
    std::fs::create_dir_all(&dir).unwrap();
    let store = SqliteStore::connect(&format!("sqlite://{dir}/x.db")).await.unwrap();
    store.migrate().await.unwrap();
    let c = ConsumerName::new("stock").unwrap();
    let batch = |from: usize, len: usize| -> Vec<String> {
        (from..from + len).map(|k| format!("order-{k:010}")).collect()
    };
    let run = |store: SqliteStore, c: ConsumerName, ids: Vec<String>| async move {
        let claims: Vec<Claim> = ids
            .iter()
            .map(|i| Claim {
                key: ReceiptKey::of(&c, &Tenant::none(), &MessageId::new(i.as_str()).unwrap()),
                tenant: "",
                message_id: i,
            })
            .collect();
        let cl = store.claim(&c, &claims).await.unwrap();
        store.commit(cl.txn, None).await.unwrap();
    };
    let t = Instant::now();
    for b in 0..n / 5000 {
        run(store.clone(), c.clone(), batch(b * 5000, 5000)).await;
    }
    println!("filled {n} in {:?}", t.elapsed());
    let mut tx = store.claim(&c, &[]).await.unwrap().txn;
    sqlx::query("UPDATE oncebox_inbox SET processed_at='2020-01-01T00:00:00.000Z'")
        .execute(&mut *tx)
        .await
        .unwrap();
    store.commit(tx, None).await.unwrap();
    let r = [Retention { consumer: c.clone(), keep: Duration::from_secs(86400) }];
    let t = Instant::now();
    println!("dry {:?} {:?}", store.purge(&r, true).await.unwrap(), t.elapsed());
    let c2 = ConsumerName::new("other").unwrap();
    let fg = |secs: u64, base: usize| {
        let (store, c2) = (store.clone(), c2.clone());
        async move {
            let t = Instant::now();
            let mut k = 0;
            let mut worst = Duration::ZERO;
            while t.elapsed().as_secs() < secs {
                let b = Instant::now();
                run(store.clone(), c2.clone(), batch(base + k * 500, 500)).await;
                worst = worst.max(b.elapsed());
                k += 1;
            }
            (k as f64 * 500.0 / t.elapsed().as_secs_f64(), worst)
        }
    };
    println!("foreground alone {:?}", fg(6, 100_000_000).await);
    let p = {
        let (s, r) = (store.clone(), r.clone());
        tokio::spawn(async move {
            let t = Instant::now();
            let x = s.purge(&r, false).await.unwrap();
            (x, t.elapsed())
        })
    };
    println!("foreground with purge {:?} purge done: {}", fg(6, 200_000_000).await, p.is_finished());
    println!("{:?}", p.await.unwrap());
    println!("foreground alone {:?}", fg(6, 300_000_000).await);
}
