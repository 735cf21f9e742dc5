//! The relay's share of the store's connections. One of them only records deliveries: what was published can be written down
//! whatever the others do, and is not published again because nobody could.

use crate::connections::{Connection, Connections};

#[derive(Debug, Clone)]
pub(super) struct Share {
    all: Connections,
    /// All but one.
    looking: Connections,
}

impl Share {
    /// At least two. All that the store has, if it does not say.
    pub(super) fn new(most: Option<usize>) -> Self {
        let most = most.map(|most| most.max(2));
        Self { all: Connections::new(most), looking: Connections::new(most.map(|most| most - 1)) }
    }

    /// To look for events, to read them, and to write copies.
    pub(super) async fn to_look(&self) -> (Connection, Connection) {
        let looking = self.looking.take().await;
        (looking, self.all.take().await)
    }

    /// To record deliveries.
    pub(super) async fn to_record(&self) -> Connection {
        self.all.take().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn there_is_always_one_to_record_with() {
        for most in [0, 2, 5] {
            let share = Share::new(Some(most));
            let looking: Vec<_> = std::iter::from_fn(|| share.to_look().now_or_never()).collect();
            assert_eq!(looking.len(), most.max(2) - 1);
            let recording = share.to_record().now_or_never();
            assert!(recording.is_some() && share.to_record().now_or_never().is_none());
        }
    }
}
