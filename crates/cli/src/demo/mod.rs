//! `oncebox demo`: producers that duplicate, consumer processes that get killed, and a verdict counted from the database.
//!
//! Nothing is staged: the consumers are ordinary `oncebox run` processes with a configuration file, the broker speaks
//! Kafka's protocol (librdkafka's mock cluster unless `--brokers` is given) or is your RabbitMQ, requests are requests, and
//! the numbers at the end come from queries.

mod collections;
mod consumers;
mod courier;
mod dashboard;
mod database;
mod http;
mod kafka;
mod pool;
mod producer;
mod rabbitmq;
mod tables;
mod verdict;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::args::{DemoArgs, Output};
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output;
use consumers::Consumers;
use courier::Courier;
use dashboard::Open;
use database::{Database, SKUS};
use producer::{Plan, Producer};
use verdict::Verdict;

/// The consumer's name in the demo.
const CONSUMER: &str = "oncebox-demo";
/// How many consumer processes share the partitions.
const PROCESSES: usize = 2;
/// How many messages name an article that does not exist, if somebody looks: he should have something to put right.
const MISTAKEN: u32 = 5;
/// Give up when nothing has moved for this long.
const STANDSTILL_LIMIT: Duration = Duration::from_secs(45);

/// How long it may take to put everything away.
const TIDY_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: DemoArgs) -> CommandResult {
    let mut interrupt = Interrupt::listen()?;
    // Nobody else's business: the consumers' logs are in it.
    let folder = tempfile::Builder::new()
        .prefix("oncebox-demo-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()?;
    let courier = Courier::new(&args)?;
    let database = interrupt.or(Database::open(args.store.as_deref(), folder.path())).await?;
    let stage = Stage { folder: folder.path(), database: &database, courier: &courier };
    let played = stage.play(&args, &mut interrupt).await;
    let played = match played {
        Ok((verdict, Some(open))) => stage.stay(verdict, &open, args.output.output, &mut interrupt).await,
        Ok((verdict, None)) => Ok((verdict, false)),
        Err(failure) => Err(failure),
    };
    // Whatever became of it, nothing stays behind.
    let tidied = tokio::time::timeout(TIDY_TIMEOUT, stage.tidy()).await;
    drop(folder);
    let (verdict, is_printed) = played?;
    tidied.map_err(|_| Failure::data("the demo's tables could not be removed in time"))??;
    if !is_printed {
        verdict.print(args.output.output)?;
    }
    Ok(if verdict.is_good() { Answer::Yes } else { Answer::No })
}

/// Where the demo takes place.
struct Stage<'a> {
    folder: &'a Path,
    database: &'a Database,
    courier: &'a Courier,
}

impl Stage<'_> {
    async fn play(
        &self,
        args: &DemoArgs,
        interrupt: &mut Interrupt,
    ) -> Result<(Verdict, Option<Open>), Failure> {
        let began = Instant::now();
        let Self { folder, database, courier } = *self;
        interrupt.or(database.prepare()).await?;
        interrupt.or(courier.prepare()).await?;
        output::note(&format!(
            "{} messages, about one in five sent twice, to {}; {PROCESSES} consumer processes on {}, {} of them killed with \
             SIGKILL while they work",
            args.messages,
            courier.describe(),
            database.describe(),
            args.kills
        ));
        let mut consumers = Consumers::start(folder, courier, database)?;
        let open = if args.open { Some(interrupt.or(Open::start(folder, &consumers)).await?) } else { None };
        if let Some(open) = &open {
            output::note(&format!("the dashboard is at {}", open.url));
        }
        let mistaken = if args.open && courier.parks() { MISTAKEN } else { 0 };
        let producer = Producer::start(courier.carrier().await?, Plan { messages: args.messages, mistaken });
        let bar = output::bar(u64::from(args.messages), "{bar:40.green} {pos}/{len} effects  {msg}");
        let driven = interrupt.or(drive(args, self, &producer, &mut consumers, &bar)).await;
        bar.finish_and_clear();
        producer.stop();
        match &driven {
            // What they have in flight goes with the tables.
            Err(failure) if failure.exit == Exit::Negative => consumers.kill().await,
            Err(_) => {
                consumers.stop().await;
                if let Some(log) = consumers.last_words() {
                    output::note(&format!("the consumers' last words:\n{log}"));
                }
            }
            Ok(_) => consumers.stop().await,
        }
        let end = driven?;
        let verdict = Verdict::count(self, end, &producer, consumers.kills(), began.elapsed()).await?;
        Ok((verdict, open))
    }

    /// With the dashboard open, until Ctrl-C. True: the verdict is printed.
    async fn stay(
        &self,
        verdict: Verdict,
        open: &Open,
        output: Output,
        interrupt: &mut Interrupt,
    ) -> Result<(Verdict, bool), Failure> {
        verdict.print(output)?;
        if verdict.parked() > 0 {
            output::note(&what_to_try(&open.url, verdict.parked()));
        }
        output::note(&format!("the dashboard stays at {} until Ctrl-C", open.url));
        interrupt.wait().await;
        Ok((verdict, true))
    }

    async fn tidy(&self) -> Result<(), Failure> {
        self.courier.tidy().await;
        self.database.clean_up().await
    }
}

/// For somebody who has never seen a dashboard of ours.
fn what_to_try(url: &str, parked: i64) -> String {
    let last = SKUS - 1;
    format!(
        "\n{parked} messages name an article that does not exist. The handler has rejected them, so they wait as dead letters, and held up \
         nobody.\nPut one right: open {url}dead, choose a letter, edit its sku to one that exists (sku-0 to sku-{last}), and replay \
         it.\n"
    )
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Everything that was sent is settled.
    Settled,
    /// Nothing moved any more.
    Standstill,
}

/// Kills and waits until everything produced is settled, or nothing moves any more.
async fn drive(
    args: &DemoArgs,
    Stage { database, courier, .. }: &Stage<'_>,
    producer: &Producer,
    consumers: &mut Consumers<'_>,
    bar: &ProgressBar,
) -> Result<End, Failure> {
    let mut moved = (Instant::now(), -1_i64, -1_i64);
    loop {
        if let Some(error) = producer.failed() {
            return Err(Failure { exit: Exit::Unreachable, text: format!("the producer failed: {error}") });
        }
        let effects = database.effects().await?;
        let read = courier.read(database, producer).await?;
        producer.note_consumed(read);
        bar.set_position(effects.unsigned_abs());
        bar.set_message(format!(
            "{} copies suppressed, {} kills",
            courier.duplicates(database).await?,
            consumers.kills()
        ));

        let due = u64::from(consumers.kills() + 1) * u64::from(args.messages) / u64::from(args.kills + 1);
        if consumers.kills() < args.kills && effects.unsigned_abs() >= due {
            consumers.kill_one().await?;
        }
        consumers.revive().await?;
        if (effects, read) != (moved.1, moved.2) {
            moved = (Instant::now(), effects, read);
        }
        let idle = moved.0.elapsed();
        let all_read = producer.is_finished() && read >= producer.produced();
        if all_read && consumers.kills() >= args.kills && idle >= courier.quiet() {
            consumers.stop().await;
            if courier.left().await? == 0 {
                return Ok(End::Settled);
            }
        }
        if idle > STANDSTILL_LIMIT {
            output::note(&format!(
                "nothing has moved for {} s: counting what is there",
                STANDSTILL_LIMIT.as_secs()
            ));
            return Ok(End::Standstill);
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
