//! `oncebox check`: configuration, database, schema, broker, topics, retention, durability; one line each.

mod outbox;
mod queues;
mod telemetry;

use std::io::IsTerminal;
use std::path::Path;

use oncebox_config::{Config, HandlerConfig};
use oncebox_core::error::describe_whole;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::printable::printable;
use oncebox_core::store::{Finding, FindingLevel};
use serde_json::{Value, json};

use crate::args::Output;
use crate::cluster;
use crate::commands::old_transactions;
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::load;
use crate::output;
use crate::stores::{self, ConfiguredStore, WithStore, with_store};

pub(crate) async fn run(file: &Path, output: Output) -> CommandResult {
    let config = load::config(file)?;
    let mut findings = vec![Finding::ok("configuration", format!("{} is fine", file.display()))];
    findings.extend(advice(&config));
    findings.extend(outbox::relay(&config));
    let mut unreachable = false;
    match with_store(&config.store, CheckStore { config: &config }).await {
        Ok(found) => findings.extend(found),
        Err(failure) => {
            unreachable |= failure.exit == Exit::Unreachable;
            findings.push(Finding::error("database", failure.text));
        }
    }
    let cluster = cluster::check(&config).await;
    unreachable |= cluster.unreachable;
    findings.extend(cluster.findings);
    let (queues, reached) = queues::check(&config).await;
    unreachable |= !reached;
    findings.extend(queues);
    findings.extend(telemetry::check(&config).await);

    match output {
        Output::Json => output::json(&findings.iter().map(as_json).collect::<Vec<_>>())?,
        Output::Table => print(&findings)?,
    }
    if cluster.misconfigured {
        return Err(Failure::config("the configuration is not taken: see above"));
    }
    if unreachable {
        return Err(Failure {
            exit: Exit::Unreachable,
            text: "a dependency cannot be reached: see above".to_owned(),
        });
    }
    let bad = findings.iter().any(|f| f.level == FindingLevel::Error);
    Ok(if bad { Answer::No } else { Answer::Yes })
}

struct CheckStore<'a> {
    config: &'a Config,
}

/// What is found in the database.
pub(crate) async fn of_store<S: ConfiguredStore>(
    store: &S,
    config: &Config,
) -> Result<Vec<Finding>, Failure> {
    let batches = config.inboxes.iter().map(|inbox| inbox.batch.bytes);
    let largest = batches.max().unwrap_or_else(|| BatchBounds::default().bytes);
    let mut findings = store.check(largest).await?;
    findings.extend(old_transactions::finding(store, &config.store).await?);
    findings.extend(stores::check_adopted(store, &config.inboxes).await?);
    for inbox in &config.inboxes {
        let subject = format!("handler of {}", inbox.consumer);
        findings.push(match store.handler(inbox).await {
            Ok(_) => Finding::ok(&subject, valid(&inbox.handler)),
            Err(e) => Finding::error(&subject, describe_whole(&e)),
        });
    }
    findings.extend(outbox::sweeps(store, &config.sweeps).await);
    Ok(findings)
}

impl WithStore for CheckStore<'_> {
    type Output = Result<Vec<Finding>, Failure>;

    async fn run<S: ConfiguredStore>(self, store: S) -> Self::Output {
        of_store(&store, self.config).await
    }
}

fn valid(handler: &HandlerConfig) -> String {
    let (count, what) = match handler {
        HandlerConfig::Sql(handler) => (handler.steps().len(), "statement"),
        HandlerConfig::Operations(operations) => (operations.list().len(), "operation"),
    };
    if count == 1 { format!("1 {what} is valid") } else { format!("{count} {what}s are valid") }
}

/// What is allowed and yet often a mistake.
fn advice(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for inbox in &config.inboxes {
        let HandlerConfig::Sql(handler) = &inbox.handler else { continue };
        for (nth, step) in handler.steps().iter().enumerate() {
            for warning in step.sql.warnings() {
                let subject = format!("handler of {}, statement {}", inbox.consumer, nth + 1);
                findings.push(Finding::warning(&subject, warning));
            }
        }
    }
    findings
}

fn word(level: FindingLevel) -> &'static str {
    match level {
        FindingLevel::Ok => "ok",
        FindingLevel::Warning => "warning",
        FindingLevel::Error => "error",
    }
}

fn as_json(finding: &Finding) -> Value {
    json!({"level": word(finding.level), "subject": finding.subject, "detail": finding.detail})
}

fn print(findings: &[Finding]) -> std::io::Result<()> {
    let colours = std::io::stdout().is_terminal();
    for finding in findings {
        let level = format!("{:<7}", word(finding.level));
        let text = format!(" {}: {}", printable(&finding.subject), printable(&finding.detail));
        if !colours {
            output::line(&format!("{level}{text}"))?;
            continue;
        }
        let colour = match finding.level {
            FindingLevel::Ok => 32,
            FindingLevel::Warning => 33,
            FindingLevel::Error => 31,
        };
        output::coloured_line(colour, &level, &text)?;
    }
    Ok(())
}
