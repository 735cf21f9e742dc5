//! Several processes on the same messages.

use oncebox_core::store::{ErrorClass, Store, StoreError};

use super::fixture::{Fixture, apply};
use super::subject::{Subject, Verdict};

/// Processes that apply the same messages at the same time, in batches that overlap and run in different order, apply
/// each once. They may get in each other's way, but only so that trying again helps.
pub async fn overlapping_batches_apply_each_message_once<T: Subject>() -> Verdict {
    const MESSAGES: usize = 120;
    let f = Fixture::<T>::start().await?;
    let mut processes = Vec::new();
    for process in 0..4_usize {
        let (store, consumer) = (f.subject.connect().await?, f.consumer.clone());
        processes.push(tokio::spawn(async move {
            let mut names: Vec<String> = (0..MESSAGES).map(|n| format!("order-{n}")).collect();
            if process % 2 == 1 {
                names.reverse();
            }
            for batch in names.chunks(7 + process) {
                let ids: Vec<&str> = batch.iter().map(String::as_str).collect();
                loop {
                    let Err(error) = apply::<T>(&store, &consumer, &ids, None).await else { break };
                    let class = match error.downcast_ref::<StoreError>() {
                        Some(error) => error.class,
                        None => <T::Store as Store>::classify(error.as_ref()),
                    };
                    if !matches!(class, ErrorClass::Transient | ErrorClass::Away) {
                        return Err(error);
                    }
                }
            }
            Ok(())
        }));
    }
    for process in processes {
        process.await??;
    }
    let mut effects = f.subject.effects().await?;
    effects.sort_unstable();
    let mut expected: Vec<String> = (0..MESSAGES).map(|n| format!("order-{n}")).collect();
    expected.sort_unstable();
    assert_eq!(effects, expected);
    Ok(())
}
