//! `oncebox demo`: producers that duplicate, consumer processes that get killed, and a verdict counted from the database.
//!
//! Nothing is staged: the consumers are ordinary `oncebox run` processes with a configuration file, the broker speaks
//! Kafka's protocol (librdkafka's mock cluster unless `--brokers` is given), and the numbers at the end come from SQL.

mod broker;
mod consumers;
mod database;
mod producer;
mod verdict;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::DemoArgs;
use crate::exit::{Answer, CommandResult, Failure};
use broker::Broker;
use consumers::Consumers;
use database::Database;
use producer::Producer;
use verdict::Verdict;

/// The consumer's name in the demo.
const CONSUMER: &str = "oncebox-demo";
/// How many consumer processes share the partitions.
const PROCESSES: usize = 2;
/// Give up when nothing has moved for this long.
const PATIENCE: Duration = Duration::from_secs(45);

pub(crate) async fn run(args: DemoArgs) -> CommandResult {
    let began = Instant::now();
    let folder = tempfile::Builder::new().prefix("oncebox-demo-").tempdir()?;
    let database = Database::open(args.store.as_deref(), folder.path()).await?;
    database.prepare().await?;
    let broker = Broker::open(args.brokers.as_deref()).await?;
    eprintln!(
        "{} messages, about one in five sent twice, to {}; {PROCESSES} consumer processes on {}, {} of them killed with \
         SIGKILL while they work",
        args.messages,
        broker.describe(),
        database.describe(),
        args.kills
    );

    let mut consumers = Consumers::start(folder.path(), &broker, &database)?;
    let producer = Producer::start(&broker, args.messages);
    let bar = progress_bar(u64::from(args.messages));
    let outcome = drive(&args, &database, &producer, &mut consumers, &bar).await;
    bar.finish_and_clear();
    producer.stop();
    consumers.stop().await;
    if outcome.is_err()
        && let Some(log) = consumers.last_words()
    {
        eprintln!("the consumers' last words:\n{log}");
    }
    outcome?;

    let verdict = Verdict::count(&database, &producer, consumers.kills(), began.elapsed()).await?;
    drop(consumers);
    broker.close().await;
    database.clean_up().await?;
    verdict.print(args.output.output)?;
    Ok(if verdict.good() { Answer::Yes } else { Answer::No })
}

/// Kills and waits until everything produced was delivered, or nothing moves any more.
async fn drive(
    args: &DemoArgs,
    database: &Database,
    producer: &Producer,
    consumers: &mut Consumers<'_>,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let mut moved = (Instant::now(), -1_i64, -1_i64);
    loop {
        if let Some(error) = producer.failed() {
            return Err(Failure {
                exit: crate::exit::Exit::Unreachable,
                text: format!("the producer failed: {error}"),
            });
        }
        let effects = database.effects().await?;
        let read = database.read_up_to().await?;
        producer.consumed(read);
        bar.set_position(effects.unsigned_abs());
        bar.set_message(format!(
            "{} copies suppressed, {} kills",
            database.duplicates().await?,
            consumers.kills()
        ));

        let due = u64::from(consumers.kills() + 1) * u64::from(args.messages) / u64::from(args.kills + 1);
        if consumers.kills() < args.kills && effects.unsigned_abs() >= due {
            consumers.kill_one().await?;
        }
        consumers.revive().await?;
        if producer.finished() && read >= producer.produced() && consumers.kills() >= args.kills {
            return Ok(());
        }
        if (effects, read) != (moved.1, moved.2) {
            moved = (Instant::now(), effects, read);
        } else if moved.0.elapsed() > PATIENCE {
            eprintln!("nothing has moved for {} s: counting what is there", PATIENCE.as_secs());
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

fn progress_bar(messages: u64) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{bar:40.green} {pos}/{len} effects  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(messages), target).with_style(style)
}
