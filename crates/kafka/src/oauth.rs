//! Signing in with a token (SASL OAUTHBEARER, with OIDC client credentials).
//!
//! librdkafka can ask for tokens itself if it is built with curl, which is a second TLS and some minutes of compiling. So we
//! ask, by the same properties. One thread for each cluster has the token and asks for the next one in time
//! ([`Keeper`]); every client takes what is new when it is about to do something ([`Tokens::hand_to`]), from its own thread
//! and without waiting. See decision 0037.

mod endpoint;
mod keeper;
mod oidc;
mod tokens;

pub(crate) use keeper::Keeper;
pub(crate) use oidc::Oidc;
pub(crate) use tokens::Tokens;
