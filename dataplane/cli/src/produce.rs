//! `braid produce`: keyed messages at a steady rate, or lines from stdin.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use braid_client::{Message, Position, Producer, Receipt, SendError, Topic};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::progress::{self, Counter};
use crate::record::{Happened, Record, Recorder, SEQUENCE_HEADER};
use crate::{connect, signals, span};

/// Send messages to a topic.
///
/// With --rate, --count or --duration it makes messages itself: keys key-0, key-1, ... in turn, values that begin with the number of
/// the message within its key, so that `braid check` can follow each key. The rate is open-loop: slow answers do not lower it, until
/// 32 MiB are not acknowledged. Without any of them it reads lines `key<TAB>value` from stdin; a line without a tab has no key.
///
/// Ends with a summary; exit code 1 if any message failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  braid produce orders -n shop --rate 1000 --keys 100 --duration 1m
  braid produce orders -n shop --count 100000 --size 1000 --record acked.jsonl
  printf 'customer-7\\tpaid\\n' | braid produce orders -n shop
  braid produce orders --rate 500 --record - | gzip > acked.jsonl.gz")]
pub(crate) struct Args {
    /// The topic's name
    topic: String,
    /// The topic's namespace
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Messages per second [default: as fast as they are acknowledged]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How many keys
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// What keys begin with: give each of several producers its own
    #[arg(long, default_value = "key-", value_name = "TEXT")]
    key_prefix: String,
    /// The number of the first message of each key
    #[arg(long, default_value_t = 0, value_name = "N")]
    first_seq: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    size: usize,
    /// Stop after so many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Stop after this time: 30s, 5m
    #[arg(long, value_parser = span::parse, value_name = "SPAN")]
    duration: Option<Duration>,
    /// Write a line per acknowledged message to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The producer's name in records
    #[arg(long, default_value = "producer")]
    name: String,
    /// The summary's form
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    connection: connect::Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

/// A message that was sent, for who waits for its receipt.
struct Sent {
    key: Option<Bytes>,
    seq: Option<u64>,
    at: tokio::time::Instant,
    receipt: Receipt,
}

/// Receipts awaited at a time; while it is full, sends wait.
const RECEIPTS_MAX: usize = 65_536;

/// How much longer than its duration an open-loop run may take to send what was due.
const GRACE: Duration = Duration::from_secs(1);

/// What became of all messages.
#[derive(Debug, Default)]
struct Outcome {
    acked: u64,
    failed: u64,
    first_error: Option<SendError>,
    latencies_us: Vec<u32>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let recorder = args.record.as_deref().map(Recorder::open).transpose()?.map(Arc::new);
    let mut side = JoinSet::new();
    let client = args.connection.client(&mut side).await?;
    let producer = client.producer(&Topic::new(&args.namespace, &args.topic)).await?;
    let stop = signals::watch(&mut side)?;
    let (sent, acked) = (Counter::default(), Counter::default());
    let (shown_sent, shown_acked) = (sent.clone(), acked.clone());
    progress::show(&mut side, move || format!("sent {}, acked {}", shown_sent.count(), shown_acked.count()));
    let (receipts, inbox) = mpsc::channel(RECEIPTS_MAX);
    let mut collector = JoinSet::new();
    collector.spawn(collect(inbox, recorder, args.name.clone(), acked));
    let started = tokio::time::Instant::now();
    let sending = async {
        if args.rate.is_some() || args.count.is_some() || args.duration.is_some() {
            generate(&args, &producer, &receipts, &sent, &stop).await
        } else {
            forward_lines(&producer, &receipts, &sent, &stop).await
        }
    }
    .await;
    drop(receipts);
    // A second signal ends the process; the first one lets what was sent be acknowledged.
    producer.close().await;
    let outcome = collector.join_next().await.context("the collector")???;
    client.close(Duration::from_secs(1)).await;
    side.abort_all();
    progress::done();
    summarize(&args, &outcome, sent.count(), started.elapsed());
    sending?;
    Ok(if outcome.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Message `i` is due `i / rate` after the start; those that are late go out at once.
async fn generate(
    args: &Args,
    producer: &Producer,
    receipts: &mpsc::Sender<Sent>,
    sent: &Counter,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let started = tokio::time::Instant::now();
    let end = args.duration.map(|duration| started + duration);
    for i in 0..args.count.unwrap_or(u64::MAX) {
        let due = args.rate.map_or(started, |rate| started + Duration::from_secs_f64(i as f64 / rate.max(1e-3)));
        // What was due in time still goes out, if it is not too late.
        let late = if args.rate.is_some() { GRACE } else { Duration::ZERO };
        if end.is_some_and(|end| due >= end || tokio::time::Instant::now() >= end + late) {
            break;
        }
        if due > tokio::time::Instant::now() {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(due) => {}
            }
        }
        let key = Bytes::from(format!("{}{}", args.key_prefix, i % args.keys));
        let seq = args.first_seq + i / args.keys;
        let message = Message { key: Some(key), value: value(seq, args.size), headers: Vec::new() };
        if !send(producer, message, Some(seq), receipts, sent, stop).await? {
            break;
        }
    }
    Ok(())
}

/// The number, then dots up to the size.
fn value(seq: u64, size: usize) -> Bytes {
    let mut value = seq.to_string().into_bytes();
    if value.len() < size {
        value.push(b' ');
        value.resize(size, b'.');
    }
    value.into()
}

async fn forward_lines(
    producer: &Producer,
    receipts: &mpsc::Sender<Sent>,
    sent: &Counter,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut sequences: HashMap<String, u64> = HashMap::new();
    loop {
        let line = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            line = lines.next_line() => line.context("stdin")?,
        };
        let Some(line) = line else { return Ok(()) };
        let (key, value) = line.split_once('\t').map_or((None, line.as_str()), |(key, value)| (Some(key), value));
        let seq = key.map(|key| {
            let next = sequences.entry(key.to_owned()).or_default();
            *next += 1;
            *next - 1
        });
        let message = Message {
            key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
            value: Bytes::copy_from_slice(value.as_bytes()),
            headers: seq.iter().map(|seq| (SEQUENCE_HEADER.to_owned(), seq.to_string().into())).collect(),
        };
        if !send(producer, message, seq, receipts, sent, stop).await? {
            return Ok(());
        }
    }
}

/// `false` if a signal came before there was room.
async fn send(
    producer: &Producer,
    message: Message,
    seq: Option<u64>,
    receipts: &mpsc::Sender<Sent>,
    sent: &Counter,
    stop: &CancellationToken,
) -> anyhow::Result<bool> {
    let key = message.key.clone();
    let at = tokio::time::Instant::now();
    let receipt = tokio::select! {
        biased;
        receipt = producer.send(message) => receipt?,
        () = stop.cancelled() => return Ok(false),
    };
    sent.add();
    receipts.send(Sent { key, seq, at, receipt }).await.context("the collector ended")?;
    Ok(true)
}

/// Waits for receipts in whatever order they come.
async fn collect(
    mut inbox: mpsc::Receiver<Sent>,
    recorder: Option<Arc<Recorder>>,
    name: String,
    acked: Counter,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut waiting = FuturesUnordered::new();
    let mut open = true;
    while open || !waiting.is_empty() {
        tokio::select! {
            biased;
            Some((sent, result)) = waiting.next(), if !waiting.is_empty() => {
                match result {
                    Ok(position) => {
                        acked.add();
                        outcome.acked += 1;
                        let sent: (Option<Bytes>, Option<u64>, tokio::time::Instant) = sent;
                        outcome.latencies_us.push(sent.2.elapsed().as_micros() as u32);
                        if let Some(recorder) = &recorder {
                            recorder.write(acked_record(&name, &sent.0, sent.1, position))?;
                        }
                    }
                    Err(error) => {
                        outcome.failed += 1;
                        outcome.first_error.get_or_insert(error);
                    }
                }
            }
            sent = inbox.recv(), if open && waiting.len() < RECEIPTS_MAX => match sent {
                Some(Sent { key, seq, at, receipt }) => {
                    waiting.push(async move { ((key, seq, at), receipt.await) });
                }
                None => open = false,
            },
        }
    }
    Ok(outcome)
}

fn acked_record<'a>(name: &'a str, key: &'a Option<Bytes>, seq: Option<u64>, position: Position) -> Record<'a> {
    Record {
        t: 0,
        event: Happened::Acked,
        member: name.into(),
        segment: position.segment.0,
        offset: position.offset.map(|offset| offset.0),
        key: key.as_deref().map(String::from_utf8_lossy),
        seq,
        redelivered: false,
    }
}

fn summarize(args: &Args, outcome: &Outcome, sent: u64, took: Duration) {
    let mut latencies = outcome.latencies_us.clone();
    latencies.sort_unstable();
    let at = |share: f64| {
        let index = (latencies.len() as f64 * share) as usize;
        latencies.get(index.min(latencies.len().saturating_sub(1))).map(|us| f64::from(*us) / 1e3)
    };
    let (p50, p99) = (at(0.5), at(0.99));
    let rate = outcome.acked as f64 / took.as_secs_f64().max(1e-6);
    let error = outcome.first_error.as_ref().map(ToString::to_string);
    match args.output {
        Output::Json => {
            let summary = json!({
                "sent": sent, "acked": outcome.acked, "failed": outcome.failed, "seconds": took.as_secs_f64(),
                "ackedPerSecond": rate, "latencyMs": {"p50": p50, "p99": p99}, "error": error,
            });
            // Records on stdout have it to themselves.
            if args.record.as_deref() == Some(std::path::Path::new("-")) {
                eprintln!("{summary}");
            } else {
                println!("{summary}");
            }
        }
        Output::Text => {
            let shown = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
            let (acked, failed, seconds) = (outcome.acked, outcome.failed, took.as_secs_f64());
            eprintln!(
                "sent {sent}, acked {acked}, failed {failed} in {seconds:.1} s ({rate:.0}/s), p50 {}, p99 {}",
                shown(p50),
                shown(p99)
            );
            if let Some(error) = error {
                eprintln!("first failure: {error}");
            }
        }
    }
}
