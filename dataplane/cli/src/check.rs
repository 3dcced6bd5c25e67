//! `braid check`: what record files prove about a run, offline.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

mod audit;
mod merge;
mod seen;

use audit::{Audit, Kind};
use merge::Merged;

/// Check record files of one topic: every acknowledged message delivered, once, in order per key, to one member at a time.
///
/// Reads the files of `braid produce --record` and `braid consume --record` together, in order of time, and counts
///
///   lost          acked to a producer, never delivered to anyone
///   duplicated    delivered again without being marked `redelivered`, or one number of a key delivered at two offsets
///   out of order  a message first delivered after a later one of its key
///   two members   delivered to one member while another one is not done with an earlier delivery of the same key
///
/// A message marked `redelivered` may come again, to the same or another member: that is what follows a crash. One that goes to another
/// member takes the key over from the member that is not done with it. Without records of producers nothing counts as lost.
///
/// Exit code 0: none of the four; 1: some.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "Examples:
  braid check acked.jsonl delivered.jsonl
  braid check -o json *.jsonl
  kubectl logs consumer | braid check acked.jsonl -")]
pub(crate) struct Args {
    /// Record files, `-` for stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The form of the verdict
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut audit = Audit::default();
    let mut merged = Merged::open(&args.files)?;
    while let Some(line) = merged.next_line()? {
        audit.see(&line.parse()?);
        merged.give_back(line)?;
    }
    let verdict = audit.finish();
    let counts = verdict.counts;
    match args.output {
        Output::Json => println!(
            "{}",
            json!({
                "ok": verdict.is_ok(), "acked": counts.acked, "delivered": counts.delivered, "done": counts.done,
                "redelivered": counts.redelivered, "takenOver": counts.taken_over, "keys": counts.keys,
                "lost": verdict.of(Kind::Lost), "duplicated": verdict.of(Kind::Duplicated),
                "outOfOrder": verdict.of(Kind::OutOfOrder), "twoMembers": verdict.of(Kind::TwoMembers),
                "examples": verdict.examples,
            })
        ),
        Output::Text => {
            println!(
                "messages      acked {}, delivered {}, done {}, keys {}",
                counts.acked, counts.delivered, counts.done, counts.keys
            );
            println!("redelivered   {} (taken over by another member: {})", counts.redelivered, counts.taken_over);
            for kind in Kind::ALL {
                println!("{:<13} {}", kind.name(), verdict.of(kind));
            }
            verdict.examples.iter().for_each(|example| println!("  {example}"));
            println!("{}", if verdict.is_ok() { "ok" } else { "VIOLATED" });
        }
    }
    Ok(if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
