//! The relay against a bare idempotent producer of the same bytes, and how soon a consumer sees an event.

mod bare;
mod consumer;
mod latency;
mod outbox;

use anyhow::Result;
use clap::Args;

use crate::report::median;
use crate::{server, workload};

#[derive(Debug, Args)]
pub(crate) struct Relay {
    /// The brokers.
    #[arg(long, env = "ONCEBOX_TEST_KAFKA")]
    brokers: String,
    /// A superuser's URL of the PostgreSQL server.
    #[arg(long, env = "ONCEBOX_TEST_POSTGRES")]
    postgres: String,
    /// Rounds; the median of the ratios counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Events in a round.
    #[arg(long, default_value_t = 300_000)]
    events: u32,
    /// Bytes of a payload.
    #[arg(long, default_value_t = 400)]
    payload: usize,
    /// Single events for the latency.
    #[arg(long, default_value_t = 200)]
    single: usize,
}

pub(crate) async fn run(args: Relay) -> Result<()> {
    let run = uuid::Uuid::now_v7().simple().to_string();
    let mut ratios = Vec::new();
    let (mut bare_rates, mut relay_rates) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds {
        let topic = format!("bench-relay-{run}-{round}");
        workload::create_topic(&args.brokers, &topic, 4).await?;
        let bare = bare::rate(&args.brokers, &topic, args.events, args.payload).await?;
        let name = format!("bench_{run}_relay_{round}");
        let store = server::database(&args.postgres, &name).await?;
        let relay = outbox::rate(&store, &args.brokers, &topic, args.events, args.payload).await;
        server::drop_database(&args.postgres, &name).await?;
        let relay = relay?;
        eprintln!("round {round}: bare producer {bare:>9.0} events/s, relay {relay:>9.0} events/s");
        ratios.push(relay / bare);
        bare_rates.push(bare);
        relay_rates.push(relay);
    }
    let name = format!("bench_{run}_latency");
    let store = server::database(&args.postgres, &name).await?;
    let topic = format!("bench-latency-{run}");
    workload::create_topic(&args.brokers, &topic, 1).await?;
    let told = latency::measure(&store, &args.brokers, &topic, args.single, true).await;
    let polled = latency::measure(&store, &args.brokers, &topic, args.single, false).await;
    server::drop_database(&args.postgres, &name).await?;
    let (told, polled) = (told?, polled?);

    println!("\n{} events of {} bytes; medians of {} rounds\n", args.events, args.payload, args.rounds);
    println!("| | events/s | ratio |");
    println!("|---|---|---|");
    println!("| bare idempotent producer | {:.0} | 1 |", median(bare_rates.into_iter()));
    println!("| relay | {:.0} | {:.2} |", median(relay_rates.into_iter()), median(ratios.into_iter()));
    println!("\n| commit → consumer sees it, one event at a time | p50 ms | p95 ms |");
    println!("|---|---|---|");
    println!("| relay in the same process, told of the commit (as handlers do) | {} |", told.row());
    println!("| relay in the same process, not told | {} |", polled.row());
    Ok(())
}
