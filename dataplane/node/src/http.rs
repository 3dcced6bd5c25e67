//! Health and figures over HTTP.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::status::Status;

/// Serves until stopped: `/livez` (the engine comes round), `/readyz` (it serves), `/metrics` (Prometheus text).
pub(crate) async fn serve(listener: TcpListener, status: Arc<Status>, stop: CancellationToken) -> io::Result<()> {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(status);
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn livez(State(status): State<Arc<Status>>) -> (StatusCode, &'static str) {
    if status.is_live() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, "the engine does not come round\n")
    }
}

async fn readyz(State(status): State<Arc<Status>>) -> (StatusCode, &'static str) {
    if status.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the store is not open, failed, or the node is leaving\n")
    }
}

async fn metrics(State(status): State<Arc<Status>>) -> String {
    status.text()
}
