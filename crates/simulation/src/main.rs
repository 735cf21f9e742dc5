//! Runs simulated histories: what `cargo xtask simulate` calls.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use oncebox_simulation::{Coverage, Mistake, explain, make, simulate};

/// Runs simulated histories of the engine and the relay.
#[derive(Parser)]
struct Args {
    /// How many histories.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this one, with its whole history.
    #[arg(long)]
    seed: Option<u64>,
    /// Puts each known mistake back and says after how many seeds it is found.
    #[arg(long)]
    mistakes: bool,
    /// Of the mistakes, only those whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// How many processes share the work. Each has its own statics, so that histories do not touch each other.
    #[arg(long, default_value_t = cores())]
    jobs: u64,
    /// Prints the result in one line, for the process that started this one.
    #[arg(long, hide = true)]
    part: bool,
}

fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let Some(seed) = args.seed {
        return Ok(one(seed));
    }
    if args.mistakes {
        return Ok(mistakes(args.seeds, &args.only));
    }
    if args.part {
        return Ok(part(args.from, args.seeds));
    }
    all(&args)
}

fn one(seed: u64) -> ExitCode {
    let ended = simulate(seed, true);
    for line in &ended.trace {
        println!("{line}");
    }
    if ended.violation.is_none() {
        println!("the promise holds");
        return ExitCode::SUCCESS;
    }
    println!("\n{}", explain(seed));
    ExitCode::FAILURE
}

/// Every so many seeds of a range; prints what failed and what was covered.
fn part(from: u64, seeds: u64) -> ExitCode {
    let mut coverage = Coverage::default();
    for seed in from..from + seeds {
        let ended = simulate(seed, false);
        coverage.add(&ended.coverage);
        if ended.violation.is_some() {
            println!("failed {seed}");
        }
    }
    println!("coverage {}", coverage.to_line());
    ExitCode::SUCCESS
}

fn all(args: &Args) -> Result<ExitCode> {
    let began = Instant::now();
    let me = std::env::current_exe().context("where this program is")?;
    let jobs = args.jobs.clamp(1, args.seeds.max(1));
    let mut parts = Vec::new();
    for job in 0..jobs {
        let (first, last) = (args.seeds * job / jobs, args.seeds * (job + 1) / jobs);
        let child = Command::new(&me)
            .args(["--part", "--from", &(args.from + first).to_string()])
            .args(["--seeds", &(last - first).to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a part of the work")?;
        parts.push(child);
    }
    let (mut coverage, mut failed) = (Coverage::default(), Vec::new());
    for mut child in parts {
        let output = child.stdout.take().context("the output of a part")?;
        for line in BufReader::new(output).lines() {
            let line = line.context("reading the output of a part")?;
            if let Some(seed) = line.strip_prefix("failed ") {
                failed.push(seed.parse::<u64>().context("a seed")?);
            } else if let Some(counts) = line.strip_prefix("coverage ") {
                coverage.add(&Coverage::from_line(counts).context("what a part has covered")?);
            }
        }
        let status = child.wait().context("waiting for a part")?;
        anyhow::ensure!(status.success(), "a part of the work ended with {status}");
    }
    print!("{}", coverage.table());
    let seconds = began.elapsed().as_secs_f64();
    println!("{} histories in {seconds:.0} s, {:.0} per second", args.seeds, args.seeds as f64 / seconds);
    if let Some(seed) = failed.first() {
        println!("\n{} histories broke the promise: {failed:?}\n\n{}", failed.len(), explain(*seed));
        return Ok(ExitCode::FAILURE);
    }
    let missing = coverage.missing();
    if !missing.is_empty() {
        println!("never happened, so nothing is known about it: {missing:?}");
        return Ok(ExitCode::FAILURE);
    }
    println!("the promise holds in all of them");
    Ok(ExitCode::SUCCESS)
}

/// Makes one mistake after the other.
fn mistakes(seeds: u64, only: &str) -> ExitCode {
    let mut all_found = true;
    for mistake in Mistake::ALL.iter().filter(|mistake| mistake.name().contains(only)) {
        let found = (0..seeds).find_map(|seed| {
            make(Some(*mistake));
            let violation = simulate(seed, false).violation;
            make(None);
            // What fails anyway shows nothing.
            let violation = violation.filter(|_| simulate(seed, false).violation.is_none())?;
            Some((seed, violation))
        });
        match found {
            Some((seed, violation)) => println!("| {} | {} | {violation} |", mistake.text(), seed + 1),
            None => {
                all_found = false;
                println!("| {} | not in {seeds} | |", mistake.text());
            }
        }
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
