//! One topic's life: see, think, do one step, tell.
//!
//! `observe` only reads; `plan` is pure; `act` does one idempotent step, fenced by (term, op); `tell` writes the status once,
//! by resourceVersion, and not at all if nothing changed.

pub(crate) mod act;
pub(crate) mod conditions;
pub(crate) mod judge;
pub(crate) mod memory;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod reconcile;
pub(crate) mod status;
pub(crate) mod tell;
#[cfg(test)]
mod tests;
pub(crate) mod told;
