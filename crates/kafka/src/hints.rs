//! What to look at when a broker does not let us in. librdkafka says what happened, and seldom what to do.

use rdkafka::error::RDKafkaErrorCode;

use crate::oauth::Tokens;

/// The reason that librdkafka gave, and what to do about it if that is known.
pub(crate) fn with_hint(code: RDKafkaErrorCode, reason: String, tokens: &Tokens) -> String {
    let hint = match code {
        // Where the token comes from has been said already.
        RDKafkaErrorCode::Authentication if reason.contains("OAUTHBEARER token") => return reason,
        RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed => match tokens.failure() {
            // Then it is an old one that the broker did not take.
            Some(failure) => failure,
            None => "Check sasl.mechanism, and who signs in: sasl.username and sasl.password, or sasl.oauthbearer.client.id"
                .to_owned(),
        },
        RDKafkaErrorCode::SSL => {
            "Check ssl.ca.location (who signed the certificates of the brokers), the names in them, and security.protocol"
                .to_owned()
        }
        _ => return reason,
    };
    format!("{reason}. {hint}")
}

/// Whether it is of no use to wait: the broker answers, and does not let us in.
pub(crate) fn is_refusal(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::SSL
            | RDKafkaErrorCode::UnsupportedSASLMechanism
    )
}
