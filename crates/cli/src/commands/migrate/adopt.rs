//! `oncebox migrate adopt`: from a table of the application to oncebox's own.
//!
//! Passes copy what is there while others write, until a pass finds little. Then the switch: nobody writes, the rest is
//! copied, and the table gets another name. Killed at any point it can be run again: what is copied stays so.

use indicatif::ProgressBar;
use oncebox_config::{Config, InboxConfig};
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Adopt, AdoptError, CopyFrom, PageMark, Switched};

use crate::args::AdoptArgs;
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, with_store};

/// A pass that finds no more than this is followed by the switch: that many are copied in a moment.
const FEW: u64 = 1000;
/// Where so much is written that no pass ever finds little, the switch comes all the same.
const MAX_PASSES: u32 = 20;

pub(super) async fn run(config: &Config, args: AdoptArgs) -> CommandResult {
    let adopt = mapping(config, &args)?;
    let consumer = consumer(&adopt, &config.inboxes, args.consumer.clone())?;
    with_store(&config.store, Move { adopt, consumer, args, still_adopted: config.store.adopt.is_some() })
        .await
}

fn usage(text: impl Into<String>) -> Failure {
    Failure { exit: Exit::Usage, text: text.into() }
}

/// The mapping that the arguments describe, or that of the configuration.
fn mapping(config: &Config, args: &AdoptArgs) -> Result<Adopt, Failure> {
    let Some(message_id) = &args.message_id else {
        let configured = config.store.adopt.as_ref().filter(|adopt| adopt.to_string() == args.from);
        return configured.cloned().ok_or_else(|| {
            usage(format!(
                "[store.adopt] does not name {}: say which column holds the ids, with --message-id",
                args.from
            ))
        });
    };
    let named = || -> Result<Adopt, AdoptError> {
        let mut adopt = Adopt::table(&args.from, message_id)?;
        if let Some(format) = args.id_format {
            adopt = adopt.id_format(format);
        }
        if let Some(column) = &args.processed_at {
            adopt = adopt.processed_at(column)?;
        }
        if let Some(column) = &args.consumer_column {
            adopt = adopt.consumer(column)?;
        }
        match &args.tenant_column {
            Some(column) => adopt.tenant(column),
            None => Ok(adopt),
        }
    };
    named().map_err(|error| usage(error.to_string()))
}

fn consumer(
    adopt: &Adopt,
    inboxes: &[InboxConfig],
    named: Option<ConsumerName>,
) -> Result<Option<ConsumerName>, Failure> {
    match (adopt.consumer_column(), named, inboxes) {
        (Some(_), None, _) => Ok(None),
        (Some(column), Some(_), _) => {
            Err(usage(format!("the column {column} says whose receipts they are: leave --consumer out")))
        }
        (None, Some(named), _) => Ok(Some(named)),
        (None, None, [only]) => Ok(Some(only.consumer.clone())),
        (None, None, _) => {
            Err(usage("the table has no column for consumers: say whose receipts they are, with --consumer"))
        }
    }
}

struct Move {
    adopt: Adopt,
    consumer: Option<ConsumerName>,
    args: AdoptArgs,
    still_adopted: bool,
}

impl WithStore for Move {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        let dry_run = self.args.dry_run;
        if !dry_run {
            for migration in store.migrate().await? {
                output::note(&format!("applied {}: {}", migration.version, migration.name));
            }
        } else if store.migrations().await?.iter().any(|migration| !migration.applied) {
            return Err(usage(
                "oncebox's own tables are missing or of an older version, and a dry run changes nothing: run `oncebox migrate` first",
            ));
        }
        let mut interrupt = Interrupt::listen()?;
        let from = CopyFrom { adopt: &self.adopt, consumer: self.consumer.as_ref(), dry_run };
        let mut copied = 0;
        for pass in 1..=MAX_PASSES {
            let bar = output::bar(0, "{bar:40.green} {percent}% of the table copied");
            let passed = interrupt.or(one_pass(&store, from, &bar)).await;
            bar.finish_and_clear();
            let Passed { seen, written, skipped, uuids } = passed?;
            copied += written;
            let verb = if dry_run { "would copy" } else { "copied" };
            output::note(&format!("pass {pass}: {verb} {written} of {seen} receipts"));
            if uuids && pass == 1 {
                output::note(
                    "UUIDs are copied in lower case with hyphens. oncebox's own table compares ids byte by byte: if your \
                     producers write them in another way, stay with the adopted table",
                );
            }
            if skipped > 0 {
                output::note(&format!(
                    "{skipped} rows were left out: their id is empty or too long, or their consumer is no name that oncebox takes"
                ));
            }
            if dry_run || written <= FEW {
                break;
            }
        }
        if dry_run || self.args.copy_only {
            output::line(&format!("{}: {copied} receipts", if dry_run { "would copy" } else { "copied" }))?;
            return Ok(Answer::Yes);
        }
        match store.switch_receipts(from).await? {
            // Where a new name would stop nobody, the table keeps its own and takes no more writes.
            Switched::Now { written, name } if name == self.adopt.to_string() => {
                output::line(&format!("copied {} receipts; {name} takes no more of them", copied + written))?;
                output::note(
                    "old code that still runs fails at its receipt, unless it bypasses validation: stop such code now, and also \
                     code that writes its effect before its receipt without a transaction",
                );
            }
            Switched::Now { written, name } => {
                output::line(&format!(
                    "copied {} receipts; {} is called {name} now",
                    copied + written,
                    self.adopt
                ))?;
                output::note(
                    "old code that still runs fails and rolls back, unless it creates its table itself or writes through a \
                     view: stop such code now",
                );
            }
            Switched::Before => output::line(&format!("{} was switched before", self.adopt))?,
        }
        output::note(if self.still_adopted {
            "now remove [store.adopt] from the configuration and restart every oncebox; until then they stand still"
        } else {
            "now start oncebox"
        });
        Ok(Answer::Yes)
    }
}

struct Passed {
    seen: u64,
    written: u64,
    skipped: u64,
    /// Whether the ids are UUIDs.
    uuids: bool,
}

/// Over the whole table. If it was switched before, there is nothing to copy.
async fn one_pass<S: ConfiguredStore>(
    store: &S,
    from: CopyFrom<'_>,
    bar: &ProgressBar,
) -> Result<Passed, Failure> {
    let mut passed = Passed { seen: 0, written: 0, skipped: 0, uuids: false };
    if store.is_switched(from.adopt).await? {
        return Ok(passed);
    }
    let mut next = Some(PageMark::default());
    while let Some(page) = next {
        let copied = store.copy_receipts(from, &page).await?;
        passed.seen += copied.seen;
        passed.written += copied.written;
        passed.skipped += copied.skipped;
        passed.uuids |= copied.uuids;
        next = copied.next;
        let (done, total) = copied.progress;
        bar.set_length(total);
        bar.set_position(done);
    }
    Ok(passed)
}
