//! librdkafka's log lines become ours.

use oncebox_core::secret::Secrets;
use rdkafka::config::RDKafkaLogLevel;
use tracing::{debug, error, info, warn};

/// librdkafka's log lines, without secrets, at a level that suits. A lost connection is an error to it, which the reader
/// reports in its own words when it matters; a commit that is refused because the group has moved on is as it should be, and
/// so are properties of the sink in the source and the other way round.
pub(crate) fn log(secrets: &Secrets, level: RDKafkaLogLevel, facility: &str, text: &str) {
    let text = secrets.removed_from(text);
    let moved_on = ["generation id", "Unknown member", "rebalanc"];
    let other_role = ["will be ignored by this", "enable.gapless.guarantee is experimental"];
    let harmless = match facility {
        "COMMITFAIL" => moved_on.iter().any(|reason| text.contains(reason)),
        "CONFWARN" => other_role.iter().any(|reason| text.contains(reason)),
        _ => false,
    };
    match level {
        _ if harmless => debug!(target: "oncebox_kafka::librdkafka", facility, "{text}"),
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            error!(target: "oncebox_kafka::librdkafka", facility, "{text}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            warn!(target: "oncebox_kafka::librdkafka", facility, "{text}");
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            info!(target: "oncebox_kafka::librdkafka", facility, "{text}");
        }
        RDKafkaLogLevel::Debug => debug!(target: "oncebox_kafka::librdkafka", facility, "{text}"),
    }
}
