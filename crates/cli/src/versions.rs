//! What this binary is made of.

/// The version, with the librdkafka that is built in: its bugs are ours too.
pub(crate) fn long() -> &'static str {
    use std::sync::OnceLock;
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        format!("{} (librdkafka {})", env!("CARGO_PKG_VERSION"), oncebox_kafka::librdkafka_version())
    })
}
