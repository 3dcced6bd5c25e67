//! `braid consume`: members of an ordered group, with simulated work.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use braid_client::{Client, Consumer, Membership, Received, Topic};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::progress::{self, Counter};
use crate::record::{Happened, Record, Recorder, sequence};
use crate::{connect, signals, span};

/// Receive messages of a topic as members of an ordered subscription.
///
/// Each member takes one message at a time, works on it for --work, then acks it. Prints `key<TAB>value` per message, or records with
/// --record. SIGTERM, --count and --idle leave cleanly: the message in work is acked, the rest goes to other members at once. A second
/// signal ends the process like a crash.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  braid consume orders -n shop --subscription billing
  braid consume orders -n shop --subscription billing --members 5 --work 1ms --idle 5s --record delivered.jsonl
  braid consume orders -n shop --subscription audit --count 10 -o json")]
pub(crate) struct Args {
    /// The topic's name
    topic: String,
    /// The topic's namespace
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// The subscription's name
    #[arg(short, long)]
    subscription: String,
    /// How many members in this process
    #[arg(long, default_value_t = 1, value_name = "M", value_parser = clap::value_parser!(u32).range(1..))]
    members: u32,
    /// What members are called: NAME-0, NAME-1, ...
    #[arg(long, default_value = "member")]
    name: String,
    /// Work per message: 500us, 1ms
    #[arg(long, default_value = "0s", value_parser = span::parse, value_name = "SPAN")]
    work: Duration,
    /// Leave after so many messages, of all members together
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Leave when no member got a message for this long
    #[arg(long, value_parser = span::parse, value_name = "SPAN")]
    idle: Option<Duration>,
    /// Write a line per delivered and per done message to FILE, or to stdout for `-`; messages are not printed then
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// How messages are printed
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

/// What all members share.
struct Group {
    recorder: Option<Recorder>,
    output: Output,
    work: Duration,
    count: Option<u64>,
    taken: Counter,
    done: Counter,
    redelivered: Counter,
    /// Cancelled when every member must leave.
    leave: CancellationToken,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut side = JoinSet::new();
    let leave = signals::watch(&mut side)?;
    let group = Arc::new(Group {
        recorder: args.record.as_deref().map(Recorder::open).transpose()?,
        output: args.output,
        work: args.work,
        count: args.count,
        taken: Counter::default(),
        done: Counter::default(),
        redelivered: Counter::default(),
        leave,
    });
    let client = args.connection.client(&mut side).await?;
    let shown = group.clone();
    progress::show(&mut side, move || {
        format!("done {}, redelivered {}", shown.done.count(), shown.redelivered.count())
    });
    if let Some(idle) = args.idle {
        side.spawn(leave_when_idle(group.clone(), idle));
    }
    let mut members = JoinSet::new();
    for i in 0..args.members {
        let membership = Membership { subscription: args.subscription.clone(), member: format!("{}-{i}", args.name) };
        members.spawn(member(client.clone(), Topic::new(&args.namespace, &args.topic), membership, group.clone()));
    }
    let mut outcome = Ok(());
    while let Some(ended) = members.join_next().await {
        let ended = ended.context("a member's task").and_then(|ended| ended);
        if ended.is_err() {
            // The others would wait for messages that nobody wants any more.
            group.leave.cancel();
            outcome = outcome.and(ended);
        }
    }
    client.close(Duration::from_secs(1)).await;
    side.abort_all();
    progress::done();
    eprintln!("done {}, redelivered {}", group.done.count(), group.redelivered.count());
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Cancels the group once no message came for `idle`. Time before the first message counts too.
async fn leave_when_idle(group: Arc<Group>, idle: Duration) {
    let (mut seen, mut since) = (0, tokio::time::Instant::now());
    let mut look = tokio::time::interval(idle.div_f64(10.0).max(Duration::from_millis(10)));
    while since.elapsed() < idle {
        look.tick().await;
        let taken = group.taken.count() + group.done.count();
        if taken != seen {
            (seen, since) = (taken, tokio::time::Instant::now());
        }
    }
    group.leave.cancel();
}

/// One member, from join to leave.
async fn member(client: Client, topic: Topic, membership: Membership, group: Arc<Group>) -> anyhow::Result<()> {
    let consumer = tokio::select! {
        biased;
        () = group.leave.cancelled() => return Ok(()),
        consumer = client.consumer(&topic, &membership) => consumer?,
    };
    let outcome = work(&consumer, &membership.member, &group).await;
    let closed = consumer.close().await;
    outcome?;
    Ok(closed?)
}

async fn work(consumer: &Consumer, name: &str, group: &Group) -> anyhow::Result<()> {
    loop {
        let received = tokio::select! {
            biased;
            () = group.leave.cancelled() => return Ok(()),
            received = consumer.next() => received?,
        };
        let Some(received) = received else { return Ok(()) };
        let taken = group.taken.add();
        let is_last = group.count.is_some_and(|count| taken >= count);
        if received.redelivered {
            group.redelivered.add();
        }
        group.record(name, &received, Happened::Delivered)?;
        if !group.work.is_zero() {
            tokio::time::sleep(group.work).await;
        }
        group.record(name, &received, Happened::Done)?;
        if group.recorder.is_none() {
            group.print(&received)?;
        }
        group.done.add();
        consumer.ack(&received.id);
        if is_last {
            group.leave.cancel();
        }
    }
}

impl Group {
    fn record(&self, member: &str, received: &Received, event: Happened) -> anyhow::Result<()> {
        let Some(recorder) = &self.recorder else { return Ok(()) };
        recorder.write(Record {
            t: 0,
            event,
            member: member.into(),
            segment: received.id.segment.0,
            offset: Some(received.id.offset.0),
            key: received.message.key.as_deref().map(String::from_utf8_lossy),
            seq: sequence(&received.message),
            redelivered: received.redelivered,
        })
    }

    fn print(&self, received: &Received) -> anyhow::Result<()> {
        let message = &received.message;
        let key = message.key.as_deref().map(String::from_utf8_lossy);
        let value = String::from_utf8_lossy(&message.value);
        let mut out = std::io::stdout().lock();
        match self.output {
            Output::Text => writeln!(out, "{}\t{value}", key.unwrap_or_default()),
            Output::Json => {
                let printed = json!({
                    "key": key, "value": value, "segment": received.id.segment.0, "offset": received.id.offset.0,
                    "bucket": received.id.bucket, "ownerNumber": received.owner_number,
                    "appendTime": received.append_time.0, "redelivered": received.redelivered,
                });
                writeln!(out, "{printed}")
            }
        }
        .context("stdout")
    }
}
