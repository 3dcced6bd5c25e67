//! `braid-node`: logs as JSON on stdout, leaves on SIGTERM or SIGINT.
//!
//! Exit codes: 0 left as asked; 64 wrong arguments; 69 an address cannot be bound; 70 a part ended by itself; 74 the store cannot be opened.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use braid_node::{Args, Failure, Server};
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors; if the terminal is gone, there is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(64) } else { ExitCode::SUCCESS };
        }
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).init();
    let stop = CancellationToken::new();
    let mut signals = JoinSet::new();
    signals.spawn(asked_to_leave(stop.clone()));
    match run(args, stop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Stopped) => ExitCode::SUCCESS,
        Err(failure) => {
            let code = match failure {
                Failure::Http { .. } | Failure::Quic(_) => 69,
                Failure::Store { .. } | Failure::Node { .. } => 74,
                Failure::Thread { .. } | Failure::Ended { .. } | Failure::Stopped => 70,
            };
            tracing::error!(error = format!("{:#}", anyhow::Error::from(failure)), "ends");
            ExitCode::from(code)
        }
    }
}

async fn run(args: Args, stop: CancellationToken) -> Result<(), Failure> {
    tracing::info!(store = args.store, data_plane = args.data_plane, version = env!("CARGO_PKG_VERSION"), "starts");
    let server = Server::start(args, stop).await?;
    if let Ok(listen) = server.local_addr() {
        tracing::info!(%listen, http = %server.http_addr(), "serves");
    }
    server.run().await
}

/// Cancels `stop` at the first SIGTERM or SIGINT.
async fn asked_to_leave(stop: CancellationToken) {
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        tracing::error!("signals cannot be awaited: the node leaves only by being killed");
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    stop.cancel();
}
