//! The one place of this program that reads the wall clock.

use braid_model::Micros;
use jiff::Timestamp;

/// Microseconds since 1970.
pub(crate) fn now() -> Micros {
    Micros(u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0))
}
