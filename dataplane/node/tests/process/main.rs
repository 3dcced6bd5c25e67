//! A node as users run it: the program itself, on loopback, with certificates of a test's own CA.

mod authority;
mod clients;
mod health;
mod journey;
mod program;
mod talk;
mod topic;

use std::time::Duration;

/// What comes within 20 s: a test that would hang fails instead.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("20 s are enough on loopback")
}
