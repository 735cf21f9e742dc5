//! Batches that are too large for something are made smaller, and a message that is too large alone is told.

use super::operations::{Shop, is_rejected, message};
use super::support::Verdict;

/// Each message becomes `n` rows of 100 KiB.
const MANY: &str = r#"{"messages": [
        {"$set": {"n": {"$range": [0, "$payload.n"]}}}, {"$unwind": "$n"}],
    "insert": "totals", "document": {"of": ":row.id", "n": ":row.n"}}"#;

fn rows(id: &str, n: usize) -> oncebox_core::message::Message {
    message(id, &format!(r#"{{"n": {n}, "text": "{}"}}"#, "x".repeat(100 * 1024)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_makes_too_much_is_halved_and_one_message_rejected() -> Verdict {
    let shop = Shop::open().await?;
    let handler = shop.batch(&[MANY]).await?;
    // 32 MiB are 327 of them.
    let messages = [rows("a", 150), rows("b", 150), rows("c", 150), rows("d", 400)];
    let failure = shop.apply(&handler, &messages[..3]).await.err().ok_or("it was applied")?;
    assert_eq!(failure.at, None, "it may be any of them");
    let alone = shop.apply(&handler, &messages[3..]).await.err().ok_or("it was applied")?;
    assert!(is_rejected(&alone));
    let failed = shop.settle(&handler, &messages).await;
    let why =
        "operation 1 (insert into totals): the pipeline makes more than 100000 rows, or more than 32 MiB";
    assert!(failed.len() == 1 && failed[0].0 == "d" && failed[0].1.starts_with(why), "{failed:?}");
    assert_eq!(shop.all("totals").await?.len(), 450);
    Ok(())
}

/// The messages themselves travel in one command.
#[tokio::test(flavor = "multi_thread")]
async fn messages_beyond_one_command_are_halved() -> Verdict {
    let shop = Shop::open().await?;
    let handler = shop.batch(&[MANY]).await?;
    let large = |id: &str, mib: usize| {
        message(id, &format!(r#"{{"n": 1, "text": "{}"}}"#, "x".repeat(mib * 1024 * 1024)))
    };
    let messages = [large("a", 6), large("b", 6), large("c", 6), rows("d", 1)];
    let failure = shop.apply(&handler, &messages).await.err().ok_or("it was applied")?;
    assert_eq!(failure.at, None);
    assert!(failure.error.to_string().contains("15 MiB"), "{}", failure.error);
    assert_eq!(shop.settle(&handler, &messages).await, []);
    assert_eq!(shop.all("totals").await?.len(), 4);
    // And one that is too large alone, for any database of this kind.
    let failure = shop.apply(&handler, &[large("e", 15)]).await.err().ok_or("it was applied")?;
    assert!(is_rejected(&failure), "{}", failure.error);
    Ok(())
}
