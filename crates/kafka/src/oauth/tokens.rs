//! The tokens of one client.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncebox_kafka_ffi::{Token, set_token, set_token_failure};
use rdkafka::client::{Client, ClientContext};

use super::keeper::Keeper;
use crate::error::Error;

/// Gives a client the tokens that it signs in with. One that signs in otherwise, or not at all, gets none and pays nothing.
#[derive(Default)]
pub(crate) struct Tokens {
    keeper: Option<Arc<Keeper>>,
    /// The newest that the client was told about.
    seen: AtomicU64,
}

impl Tokens {
    pub(crate) fn of(keeper: Option<Arc<Keeper>>) -> Self {
        Self { keeper, seen: AtomicU64::new(0) }
    }

    /// Gives the client what is new: a token, or why there is none. Does not wait. To be called now and then.
    pub(crate) fn hand_to<C: ClientContext>(&self, client: &Client<C>) {
        let Some(keeper) = &self.keeper else { return };
        let seen = self.seen.load(Ordering::Relaxed);
        let state = keeper.state();
        if state.asked == seen {
            return;
        }
        let is_new = |number: u64| number > seen;
        let token = state.token.clone().filter(|(number, _)| is_new(*number));
        let failure = state.failure.clone().filter(|(number, _)| is_new(*number));
        self.seen.store(state.asked, Ordering::Relaxed);
        drop(state);
        if let Some((_, granted)) = token {
            let token = Token {
                value: &granted.token,
                expires_at_ms: granted.expires_at_ms,
                principal: &granted.principal,
                extensions: keeper.extensions(),
            };
            if let Err(reason) = set_token(client, &token) {
                set_token_failure(client, &format!("the token is refused: {reason}"));
            }
        }
        if let Some((_, reason)) = failure {
            set_token_failure(client, &reason);
        }
    }

    /// Why there is no new token, if there is none.
    pub(crate) fn failure(&self) -> Option<String> {
        self.keeper.as_ref()?.state().failure.as_ref().map(|(_, reason)| reason.clone())
    }

    /// As [`Tokens::hand_to`], for a client that is about to ask something: waits until there is a token, or a reason why
    /// there is none.
    pub(crate) fn wait_and_hand_to<C: ClientContext>(
        &self,
        client: &Client<C>,
        timeout: Duration,
    ) -> Result<(), Error> {
        if let Some(keeper) = &self.keeper {
            keeper.wait(timeout).map_err(Error::NoToken)?;
            self.hand_to(client);
        }
        Ok(())
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("keeper", &self.keeper).finish_non_exhaustive()
    }
}
