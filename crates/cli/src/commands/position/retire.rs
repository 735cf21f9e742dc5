//! `oncebox position retire`.

use oncebox_config::Config;
use oncebox_core::names::ConsumerName;

use crate::args::Output;
use crate::commands::selection::report_changed;
use crate::exit::CommandResult;
use crate::output;
use crate::stores::ConfiguredStore;

pub(super) async fn retire<S: ConfiguredStore>(
    store: &S,
    config: &Config,
    consumer: &ConsumerName,
    topic: &str,
    output: Output,
) -> CommandResult {
    let retired = store.retire_positions(consumer, topic).await?;
    if retired == 0 {
        output::note(&format!("{consumer} has no position in {topic} that is not retired already"));
    }
    let still_read = config
        .inboxes
        .iter()
        .any(|inbox| inbox.consumer == *consumer && inbox.source.names().contains(&topic));
    if still_read {
        output::note(&format!(
            "the configuration still reads {topic}: a process that finds it takes its positions up again. Remove it from the \
             topics of {consumer}"
        ));
    }
    report_changed("retired", retired, "positions", output)
}
