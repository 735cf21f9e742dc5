#![allow(clippy::all, missing_docs, clippy::unwrap_used)]
use oncebox_core::config::*;
use oncebox_core::statement::Statement;
use oncebox_core::*;
use oncebox_sqlite::*;
use std::time::Instant;
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let dir = std::env::args().nth(1).unwrap();
    for mode in ["receipts", "each", "batch", "none-each"] {
        std::fs::remove_dir_all(&dir).ok();
        std::fs::create_dir_all(&dir).unwrap();
        let store = SqliteStore::connect(&format!("sqlite://{dir}/x.db")).await.unwrap();
        store.migrate().await.unwrap();
        let c = ConsumerName::new("stock").unwrap();
        let mut t = store.claim(&c, &[]).await.unwrap().txn;
        sqlx::raw_sql("CREATE TABLE stock(sku TEXT PRIMARY KEY, on_hand INTEGER); CREATE TABLE ledger(message_id TEXT PRIMARY KEY, sku TEXT, qty INTEGER) WITHOUT ROWID; WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n+1 FROM n WHERE n<999) INSERT INTO stock SELECT 'sku-'||n, 1000000 FROM n;").execute(&mut *t).await.unwrap();
        store.commit(t, None).await.unwrap();
        let step = |s: &str| Step { statement: Statement::parse(s).unwrap(), rows: None };
        let each = Handler::Each(vec![
            Step {
                rows: Some("1".parse().unwrap()),
                ..step("UPDATE stock SET on_hand = on_hand - (:payload->>'qty') WHERE sku = :payload->>'sku'")
            },
            step("INSERT INTO ledger(message_id, sku, qty) VALUES (:id, :payload->>'sku', :payload->>'qty')"),
        ]);
        let b = |s: &str| Step { statement: Statement::parse_batch(s).unwrap(), rows: None };
        let batch = Handler::Batch(vec![
            b(
                "UPDATE stock SET on_hand = on_hand - m.qty FROM (SELECT payload->>'sku' AS sku, sum(payload->>'qty') AS qty FROM messages GROUP BY 1) m WHERE m.sku = stock.sku",
            ),
            b(
                "INSERT INTO ledger(message_id, sku, qty) SELECT id, payload->>'sku', payload->>'qty' FROM messages",
            ),
        ]);
        let each = SqlHandler::prepare(&store, &each, PayloadKind::Json).await.unwrap();
        let batch = SqlHandler::prepare(&store, &batch, PayloadKind::Json).await.unwrap();
        let owner = store
            .acquire(&PositionKey { consumer: c.clone(), topic: "t".into(), partition: 0 })
            .await
            .unwrap();
        let n = 100;
        let mut claim_t = 0.0;
        let mut h_t = 0.0;
        let mut c_t = 0.0;
        let mut total = 0.0;
        for bt in 0..n {
            let msgs: Vec<Message> = (0..500)
                .map(|i| {
                    let k = bt * 500 + i;
                    let mut r = Record::at("t", 0, k as i64);
                    r.payload = Some(
                        format!(
                            "{{\"sku\":\"sku-{}\",\"qty\":1,\"note\":\"some more text here\"}}",
                            k * 7919 % 1000
                        )
                        .into(),
                    );
                    Message::new(MessageId::new(format!("order-{k:010}")).unwrap(), Tenant::none(), r)
                })
                .collect();
            let t0 = Instant::now();
            let claims: Vec<Claim> = if mode == "none-each" {
                vec![]
            } else {
                msgs.iter()
                    .map(|m| Claim {
                        key: ReceiptKey::of(&c, m.tenant(), m.id()),
                        tenant: "",
                        message_id: m.id().as_str(),
                    })
                    .collect()
            };
            let mut cl = store.claim(&c, &claims).await.unwrap();
            let t1 = Instant::now();
            match mode {
                "each" | "none-each" => each.apply(&mut cl.txn, &msgs).await.unwrap(),
                "batch" => batch.apply(&mut cl.txn, &msgs).await.unwrap(),
                _ => {}
            }
            let t2 = Instant::now();
            store
                .commit(
                    cl.txn,
                    Some(Advance {
                        owner: &owner,
                        next_offset: Some(bt as i64 * 500 + 500),
                        applied: 500,
                        duplicates: 0,
                        settled_attempt: None,
                    }),
                )
                .await
                .unwrap();
            let t3 = Instant::now();
            claim_t += (t1 - t0).as_secs_f64();
            h_t += (t2 - t1).as_secs_f64();
            c_t += (t3 - t2).as_secs_f64();
            total += (t3 - t0).as_secs_f64();
        }
        println!(
            "{mode:<10} claim {:>6.0} us handler {:>6.0} us commit {:>6.0} us  per batch of 500; {:>7.0} messages/s",
            claim_t / n as f64 * 1e6,
            h_t / n as f64 * 1e6,
            c_t / n as f64 * 1e6,
            (n * 500) as f64 / total
        );
    }
}
