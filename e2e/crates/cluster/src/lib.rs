//! A real cluster as the promise tests see it: `kubectl`, machines that crash, and waiting for facts.
//!
//! The cluster itself comes from `e2e/cluster/run`; its whereabouts arrive in the environment. Knows nothing of topics.

mod cluster;
mod wait;

pub use cluster::{Cluster, Machine, Namespace};
pub use wait::until;
