//! `oncebox position retire`.

use oncebox_config::Config;
use oncebox_core::names::ConsumerName;
use oncebox_core::operate::Operator;
use serde_json::json;

use crate::args::Output;
use crate::cluster;
use crate::commands::selection::report_changed;
use crate::exit::CommandResult;
use crate::output;
use crate::stores::ConfiguredStore;

pub(super) async fn retire<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    config: &Config,
    consumer: &ConsumerName,
    topic: &str,
    output: Output,
) -> CommandResult {
    let action = operator.action("position retire").to(consumer.as_str()).with(json!({ "topic": topic }));
    let work = store.retire_positions(consumer, topic);
    let retired = operator.act(action, work, |retired| json!({ "retired": retired })).await?;
    if retired == 0 {
        output::note(&format!("{consumer} has no position in {topic} that is not retired already"));
    }
    let still_read =
        config.inboxes.iter().any(|inbox| inbox.consumer == *consumer && cluster::reads(inbox, topic));
    if still_read {
        output::note(&format!(
            "the configuration still reads {topic}: a process that finds it takes its positions up again. Remove it from the \
             topics of {consumer}"
        ));
    }
    report_changed("retired", retired, "positions", output)
}
