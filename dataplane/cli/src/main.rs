//! `braid`: produce, consume, check what came through, ask the evaluator, look at a topic.
//!
//! Data goes to stdout, words to stderr. Exit codes: 0 all well, 1 an error or a violation, 2 a wrong command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod check;
mod connect;
mod consume;
mod decide;
mod kubeconfig;
mod produce;
mod progress;
mod record;
mod signals;
mod span;
mod status;

#[derive(Debug, Parser)]
#[command(name = "braid", version, about = "Scalable, key-ordered topics: the command line", max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Produce(produce::Args),
    Consume(consume::Args),
    Check(check::Args),
    Decide(decide::Args),
    Status(status::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("BRAID_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // kube finds its provider here; an error says that there is one already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match cli.command {
        Command::Produce(args) => wait_for(produce::run(args)),
        Command::Consume(args) => wait_for(consume::run(args)),
        Command::Check(args) => check::run(&args),
        Command::Decide(args) => decide::run(&args),
        Command::Status(args) => wait_for(status::run(args)),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("braid: {error:#}");
        ExitCode::FAILURE
    })
}

fn wait_for(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(command);
    // A read of stdin that nobody waits for any more would hold up the end.
    runtime.shutdown_background();
    outcome
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn every_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
