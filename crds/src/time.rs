//! Wall times of the model as Kubernetes writes them.

use braid_model::Micros;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

/// The RFC 3339 time of `at`; the latest that can be written, in the year 9999, for one beyond it.
#[must_use]
pub fn micro_time(at: Micros) -> MicroTime {
    let at = i64::try_from(at.0).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    MicroTime(at.unwrap_or(Timestamp::MAX))
}

/// The microseconds since 1970 of `time`; 0 for one before.
#[must_use]
pub fn micros(time: &MicroTime) -> Micros {
    Micros(u64::try_from(time.0.as_microsecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_the_way_through_json_to_the_microsecond() {
        for us in [0, 1, 999_999, 1_764_551_514_123_456] {
            let json = serde_json::to_string(&micro_time(Micros(us))).unwrap();
            let back: MicroTime = serde_json::from_str(&json).unwrap();
            assert_eq!(micros(&back), Micros(us), "{json}");
        }
    }
}
