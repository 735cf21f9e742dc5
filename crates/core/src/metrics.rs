//! Every metric of oncebox, in one table: kind, labels, name, help text, and the buckets of a histogram.
//!
//! A metric that is not in this table does not exist: nothing else in the workspace registers one, the exporter takes help
//! texts and buckets from here, and the table in `docs/guides/daemon.md` must say the same. Tests see to all three.
//!
//! To add one, write a line here and its row there. Labels are few and known beforehand: no key, id, tenant or payload ever
//! becomes one. A topic does in one metric, which is bounded where it is shown.
//!
//! Most are counted as things happen. Some are worked out when somebody asks, from what is there at that moment: so what is gone
//! is not shown any more. They stand at the end.

pub use metrics::{Counter, Gauge, Histogram};
use metrics::{
    SharedString, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

/// What a metric measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts values by size.
    Histogram,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// As Prometheus knows it.
    pub name: &'static str,
    /// What it measures.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says, in a sentence.
    pub help: &'static str,
    /// The upper bounds of a histogram's buckets; none for the other kinds.
    pub buckets: &'static [f64],
}

const MESSAGES_IN_A_BATCH: &[f64] =
    &[1.0, 5.0, 10.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0];
const SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Rows of a table are counted up to here: a metric must not cost a scan of a large table. The help texts say so.
pub const COUNT_CAP: u64 = 10_000;

/// Makes of each line a row of [`ALL`]: of those that are counted also a function that registers the metric, with its labels as
/// parameters; of the others, which are gauges, a constant.
macro_rules! table {
    (
        counted { $( $kind:ident $function:ident($($value:ident: $label:literal),*) = $name:literal, $help:literal $(, $buckets:ident)?; )* }
        worked_out { $( $constant:ident($($its_label:literal),*) = $its_name:literal, $its_help:literal; )* }
    ) => {
        $(
            #[doc = $its_help]
            pub const $constant: Metric = Metric {
                name: $its_name,
                kind: Kind::Gauge,
                labels: &[$($its_label),*],
                help: $its_help,
                buckets: &[],
            };
        )*

        /// The whole table.
        pub const ALL: &[Metric] = &[$(
            Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
                buckets: table!(@buckets $($buckets)?),
            },
        )* $( $constant, )*];

        $(
            #[doc = $help]
            pub fn $function($($value: impl Into<SharedString>),*) -> $kind {
                table!(@register $kind $name $($label $value)*)
            }
        )*
    };
    (@buckets) => { &[] };
    (@buckets $buckets:ident) => { $buckets };
    (@register Counter $name:literal $($label:literal $value:ident)*) => { counter!($name $(, $label => $value.into())*) };
    (@register Gauge $name:literal $($label:literal $value:ident)*) => { gauge!($name $(, $label => $value.into())*) };
    (@register Histogram $name:literal $($label:literal $value:ident)*) => { histogram!($name $(, $label => $value.into())*) };
}

table! { counted {
    Counter messages_total(consumer: "consumer", outcome: "outcome") = "oncebox_messages_total",
        "Messages by outcome: applied, duplicate, differs (an id that was used for another message), dead, retried or filtered.";
    Counter duplicates_total(consumer: "consumer", cause: "cause") = "oncebox_duplicates_total",
        "Duplicates by cause: redelivered, rewound, published_twice or unknown.";
    Counter redelivered_total(consumer: "consumer", outcome: "outcome") = "oncebox_redelivered_total",
        "Messages that the broker had delivered before, by outcome: applied or duplicate.";
    Histogram batch_size(consumer: "consumer") = "oncebox_batch_size",
        "Messages in one transaction.", MESSAGES_IN_A_BATCH;
    Histogram transaction_seconds(consumer: "consumer") = "oncebox_transaction_seconds",
        "How long one transaction took, from claim to commit.", SECONDS;
    Gauge lag_messages(consumer: "consumer") = "oncebox_lag_messages",
        "Messages in the partitions of this process that are not applied yet.";
    Gauge waiting_bytes() = "oncebox_waiting_bytes",
        "Bytes of the messages of this process that wait for their transaction, or are in one.";
    Gauge partitions_stopped(consumer: "consumer") = "oncebox_partitions_stopped",
        "Partitions of this process that stand still.";
    Gauge consumer_paused(consumer: "consumer") = "oncebox_consumer_paused",
        "1 while a consumer of this process is paused, else 0.";
    Gauge dead_letters(consumer: "consumer") = "oncebox_dead_letters",
        "Dead letters in the database, counted up to 10,000.";
    Counter purged_total() = "oncebox_purged_total",
        "Receipts that retention has removed.";
    Gauge outbox_pending() = "oncebox_outbox_pending",
        "Events that are not published yet, held ones included, counted up to 10,000.";
    Gauge outbox_delayed() = "oncebox_outbox_delayed",
        "Events whose time has not come, counted up to 10,000.";
    Gauge outbox_held() = "oncebox_outbox_held",
        "Events whose delivery failed, and those that wait behind one, counted up to 10,000.";
    Gauge outbox_parked() = "oncebox_outbox_parked",
        "Events that were given up, counted up to 10,000.";
    Gauge outbox_oldest_seconds() = "oncebox_outbox_oldest_seconds",
        "How long the oldest unpublished event has waited.";
    Counter relay_published_total() = "oncebox_relay_published_total",
        "Events that the relay has published.";
    Counter relay_retried_total() = "oncebox_relay_retried_total",
        "Deliveries that failed and will be tried again.";
    Counter relay_parked_total() = "oncebox_relay_parked_total",
        "Events that the relay has given up.";
    Gauge relay_shards() = "oncebox_relay_shards",
        "Shards of the outbox that belong to this process; there are 16.";
    Gauge webhook_away(receiver: "receiver") = "oncebox_webhook_away",
        "1 while a receiver of webhooks gets no events but one now and then, because it failed or asked for a pause.";
    Counter telemetry_dropped_total() = "oncebox_telemetry_dropped_total",
        "Spans that no collector has got, because it was away, slow, or refused them.";
} worked_out {
    LAG_SECONDS("consumer") = "oncebox_lag_seconds",
        "Age of the oldest message in the partitions of this process that is not applied yet.";
    PARTITION_LAG_MESSAGES("consumer", "topic", "partition") = "oncebox_partition_lag_messages",
        "Messages in a partition of this process that are not applied yet; the first 1,000 partitions.";
    LOOP_LAST_SUCCESS_AGE_SECONDS("loop") = "oncebox_loop_last_success_age_seconds",
        "How long a loop has had work without success.";
    LOOPS_UNHEALTHY("loop") = "oncebox_loops_unhealthy",
        "Loops that want attention: while there is one, /healthz is red.";
} }

/// Tells the exporter the help text of every metric. To be called once, when it is installed.
pub fn describe_all() {
    for Metric { name, kind, help, .. } in ALL.iter().copied() {
        match kind {
            Kind::Counter => describe_counter!(name, help),
            Kind::Gauge => describe_gauge!(name, help),
            Kind::Histogram => describe_histogram!(name, help),
        }
    }
}
