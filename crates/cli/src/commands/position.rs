//! `oncebox position`: where each consumer is, and how to move it.

mod list;
mod plan;
pub(crate) mod relocate;
mod retire;

use std::path::Path;

use oncebox_config::Config;
use oncebox_core::names::ConsumerName;
use oncebox_core::operate::Operator;
use oncebox_core::store::PositionStatus;

use crate::args::PositionAction;
use crate::cluster;
use crate::exit::{CommandResult, Exit, Failure};
use crate::load;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};
pub(crate) use plan::Move;

/// Only positions are asked for, so as little as possible is counted.
pub(crate) const LOWEST_CAP: u64 = 1;

pub(crate) async fn run(file: &Path, who: &str, action: PositionAction) -> CommandResult {
    let config = load::config(file)?;
    with_store(&config.store, Position { action, who, config: &config }).await
}

struct Position<'a> {
    action: PositionAction,
    who: &'a str,
    config: &'a Config,
}

impl WithStore for Position<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let status = store.status(LOWEST_CAP).await?;
        let operator = Operator::new(&store, self.who);
        match self.action {
            PositionAction::List { consumer, topic, output } => {
                let mut positions = status.positions;
                positions.retain(|p| consumer.as_ref().is_none_or(|c| *c == p.consumer));
                positions.retain(|p| topic.as_ref().is_none_or(|t| *t == p.topic));
                let is_filtered = consumer.is_some() || topic.is_some();
                list::list(self.config, &positions, is_filtered, output.output).await
            }
            PositionAction::Move(wanted) => {
                relocate::relocate(&store, &operator, self.config, &status, &wanted).await
            }
            PositionAction::Retire { consumer, topic, output } => {
                known(self.config, &status.positions, &consumer, &topic)?;
                retire::retire(&store, &operator, self.config, &consumer, &topic, output.output).await
            }
        }
    }
}

/// Fails unless somebody knows this consumer, and that it reads this topic: a position that was made by a typing error would
/// hold back retention for good.
fn known(
    config: &Config,
    positions: &[PositionStatus],
    consumer: &ConsumerName,
    topic: &str,
) -> Result<(), Failure> {
    let nothing = |text: String| Err(Failure { exit: Exit::Negative, text });
    let configured = || config.inboxes.iter().filter(|inbox| inbox.consumer == *consumer);
    let stored = || positions.iter().filter(|p| p.consumer == consumer.as_str());
    if configured().next().is_none() && stored().next().is_none() {
        let mut all: Vec<&str> = config.inboxes.iter().map(|inbox| inbox.consumer.as_str()).collect();
        all.extend(positions.iter().map(|p| p.consumer.as_str()));
        return nothing(format!(
            "nobody knows a consumer {consumer}: no [[inbox]] has it, and it has no position. There is {}",
            listed(all)
        ));
    }
    if configured().any(|inbox| cluster::reads(inbox, topic)) || stored().any(|p| p.topic == topic) {
        return Ok(());
    }
    let mut topics: Vec<&str> = configured().flat_map(|inbox| inbox.source.names()).collect();
    topics.extend(stored().map(|p| p.topic.as_str()));
    nothing(format!(
        "{consumer} does not read a topic {topic}, and has no position there. It reads {}",
        listed(topics)
    ))
}

fn listed(mut names: Vec<&str>) -> String {
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
