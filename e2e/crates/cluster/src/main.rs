//! The promises of Braid, one test each, on a real Kubernetes: real pods, real QUIC, real disks, `kubectl` as a user would type it.
//!
//! Run by `./e2e/test`, inside the host namespace of the cluster that it brought up; prints a line per promise.
#![forbid(unsafe_code)]

mod cluster;
mod operators;
mod pods;
mod promises;
mod records;
mod topic;
mod wait;

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;

use cluster::Cluster;
use promises::{ALL, Needs, Promise};

/// Proves Braid's promises on the cluster that KUBECONFIG names; see `./e2e/test --help`.
#[derive(Parser)]
struct Args {
    /// Only these promises, by number.
    #[arg(long, value_delimiter = ',')]
    promise: Vec<u32>,
    /// How many promises run side by side.
    #[arg(long, default_value_t = 3)]
    jobs: usize,
}

enum Outcome {
    Kept,
    NotRun(&'static str),
    Broken(anyhow::Error),
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("promises: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every promise that could run was kept.
fn run(args: &Args) -> Result<bool> {
    let cluster = Cluster::from_env()?;
    let chosen = |p: &&Promise| args.promise.is_empty() || args.promise.contains(&p.number);
    let (alone, shared): (Vec<_>, Vec<_>) = ALL.iter().filter(chosen).partition(|p| p.alone);
    let queue = Mutex::new(shared.into_iter());
    let mut outcomes = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs.max(1)).map(|_| scope.spawn(|| drain(&cluster, &queue))).collect();
        workers
            .into_iter()
            .flat_map(|w| w.join().expect("a promise reports errors, it does not panic"))
            .collect::<Vec<_>>()
    });
    outcomes.extend(alone.into_iter().map(|p| (p, prove(&cluster, p))));
    outcomes.sort_by_key(|(p, _)| p.number);
    let count = |f: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, o)| f(o)).count();
    let broken = count(|o| matches!(o, Outcome::Broken(_)));
    println!(
        "promises: {} kept, {broken} broken, {} not run",
        count(|o| matches!(o, Outcome::Kept)),
        count(|o| matches!(o, Outcome::NotRun(_)))
    );
    Ok(broken == 0)
}

fn drain<'a>(cluster: &Cluster, queue: &Mutex<impl Iterator<Item = &'a Promise>>) -> Vec<(&'a Promise, Outcome)> {
    let mut done = Vec::new();
    loop {
        let Some(promise) = queue.lock().expect("no worker panics").next() else { return done };
        done.push((promise, prove(cluster, promise)));
    }
}

fn prove(cluster: &Cluster, promise: &Promise) -> Outcome {
    let started = Instant::now();
    let outcome = match promise.needs {
        Needs::Nodes if !cluster.has_nodes() => Outcome::NotRun("needs the machines of the cluster"),
        Needs::Cluster | Needs::Nodes => (promise.run)(cluster).map_or_else(Outcome::Broken, |()| Outcome::Kept),
    };
    let (number, title, seconds) = (promise.number, promise.title, started.elapsed().as_secs_f32());
    match &outcome {
        Outcome::Kept => println!("promise {number:>2} kept     {seconds:>6.1} s  {title}"),
        Outcome::NotRun(why) => println!("promise {number:>2} not run  {seconds:>6.1} s  {title}: {why}"),
        Outcome::Broken(error) => println!("promise {number:>2} BROKEN   {seconds:>6.1} s  {title}\n    {error:#}"),
    }
    outcome
}
