//! `oncebox pause` and `oncebox resume`.

use std::collections::BTreeSet;
use std::path::Path;

use oncebox_config::Config;
use oncebox_core::names::ConsumerName;
use oncebox_core::operate::Operator;
use oncebox_core::store::{Pause, PauseNote};
use serde_json::{Value, json};

use crate::args::Output;
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::load;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

/// What is asked for.
pub(crate) enum Asked {
    /// Pause it, with this note; also if nobody knows it.
    Pause(PauseNote, bool),
    /// Let it go on.
    Resume,
}

impl Asked {
    pub(crate) fn pause(by: &str, reason: Option<&str>, force: bool) -> Self {
        let by = if by.trim().is_empty() { "somebody" } else { by };
        Self::Pause(PauseNote::by(by).because(reason.unwrap_or_default()), force)
    }
}

pub(crate) async fn run(
    file: &Path,
    who: &str,
    consumer: String,
    asked: Asked,
    output: Output,
) -> CommandResult {
    let consumer =
        ConsumerName::new(consumer).map_err(|e| Failure { exit: Exit::Usage, text: e.to_string() })?;
    let config = load::config(file)?;
    with_store(&config.store, Change { config: &config, who, consumer, asked, output }).await
}

struct Change<'a> {
    config: &'a Config,
    who: &'a str,
    consumer: ConsumerName,
    asked: Asked,
    output: Output,
}

impl WithStore for Change<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        let Self { config, who, consumer, asked, output } = self;
        require_schema(&store).await?;
        if !matches!(asked, Asked::Pause(_, true)) {
            require_known(&store, config, &consumer).await?;
        }
        let before = pause_of(&store, &consumer).await?;
        let operator = Operator::new(&store, who);
        let result = |changed: &bool| json!({ "changed": changed });
        let changed = match &asked {
            Asked::Pause(note, _) => {
                let action =
                    operator.action("pause").to(consumer.as_str()).with(json!({ "reason": note.reason() }));
                operator.act(action, store.pause(&consumer, note), result).await?
            }
            Asked::Resume => {
                operator
                    .act(operator.action("resume").to(consumer.as_str()), store.resume(&consumer), result)
                    .await?
            }
        };
        let now = pause_of(&store, &consumer).await?;
        match output {
            Output::Json => {
                let paused = now.as_ref().map(as_json);
                output::json(
                    &json!({ "consumer": consumer.as_str(), "changed": changed, "paused": paused }),
                )?;
            }
            Output::Table => output::line(&told(&consumer, &asked, changed, before.or(now).as_ref()))?,
        }
        Ok(Answer::Yes)
    }
}

pub(crate) fn told(consumer: &ConsumerName, asked: &Asked, changed: bool, pause: Option<&Pause>) -> String {
    let said = pause.map(described).unwrap_or_default();
    match (asked, changed) {
        (Asked::Pause(..), true) => format!(
            "{consumer} is paused {said}. Every process ends what is in flight within some seconds and takes nothing new, also after \
             a restart. `oncebox resume {consumer}` lets it go on"
        ),
        (Asked::Pause(..), false) => {
            format!("{consumer} is paused already {said}; nothing is changed")
        }
        (Asked::Resume, true) => format!("{consumer} goes on within some seconds. It was paused {said}"),
        (Asked::Resume, false) => format!("{consumer} is not paused; nothing is changed"),
    }
}

/// Since when, by whom and why.
pub(crate) fn described(pause: &Pause) -> String {
    let reason = pause.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("since {} by {}{reason}", output::time(pause.since_ms), pause.by)
}

pub(crate) fn as_json(pause: &Pause) -> Value {
    json!({
        "consumer": pause.consumer, "since": output::time(pause.since_ms), "by": pause.by, "reason": pause.reason,
    })
}

pub(crate) async fn pause_of(
    store: &impl ConfiguredStore,
    consumer: &ConsumerName,
) -> Result<Option<Pause>, Failure> {
    Ok(store.paused().await?.into_iter().find(|pause| pause.consumer == consumer.as_str()))
}

/// A name with a typo would be paused for nothing, and nobody would notice.
pub(crate) async fn require_known(
    store: &impl ConfiguredStore,
    config: &Config,
    consumer: &ConsumerName,
) -> Result<(), Failure> {
    let mut known: BTreeSet<String> = config.inboxes.iter().map(|inbox| inbox.consumer.to_string()).collect();
    known.extend(store.status(0).await?.consumers.into_iter().map(|status| status.consumer));
    known.extend(store.paused().await?.into_iter().map(|pause| pause.consumer));
    if known.contains(consumer.as_str()) {
        return Ok(());
    }
    let names = match known.len() {
        0 => "none is known yet".to_owned(),
        _ => format!("known are {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Err(Failure {
        exit: Exit::Negative,
        text: format!(
            "there is no consumer {consumer} in the configuration or the database; {names}. `oncebox pause {consumer} --force` \
             pauses it before its first start"
        ),
    })
}
