//! Conditions, and the rule that `lastTransitionTime` moves only when the status does.

use braid_model::Micros;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::micro_time;

/// The most characters of a condition's message.
const MESSAGE_MAX: usize = 1_024;

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can say.
    Unknown,
}

impl ConditionStatus {
    /// As the API writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Puts a condition among `conditions`, in place of the one of that type. Its `lastTransitionTime` is `now` only if the
/// status differs from what was there.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: impl Into<String>,
    observed_generation: Option<i64>,
    now: Micros,
) {
    let mut message: String = message.into();
    if let Some((end, _)) = message.char_indices().nth(MESSAGE_MAX) {
        message.truncate(end);
    }
    let before = conditions.iter_mut().find(|condition| condition.type_ == type_);
    let last_transition_time = match &before {
        Some(before) if before.status == status.name() => before.last_transition_time.clone(),
        // Whole seconds: the API's condition times have no fraction.
        _ => Time(micro_time(Micros(now.0 / 1_000_000 * 1_000_000)).0),
    };
    let after = Condition {
        type_: type_.into(),
        status: status.name().into(),
        reason: reason.into(),
        message,
        observed_generation,
        last_transition_time,
    };
    match before {
        Some(before) => *before = after,
        None => conditions.push(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_when_the_status_does() {
        let mut conditions = Vec::new();
        let mut set = |status, reason: &str, seconds: u64| {
            set_condition(&mut conditions, "Ready", status, reason, "m", Some(1), Micros(seconds * 1_000_000 + 7));
            assert_eq!(conditions.len(), 1);
            (conditions[0].reason.clone(), conditions[0].last_transition_time.0.as_second())
        };
        assert_eq!(set(ConditionStatus::False, "A", 10), ("A".into(), 10));
        assert_eq!(set(ConditionStatus::False, "B", 20), ("B".into(), 10));
        assert_eq!(set(ConditionStatus::True, "C", 30), ("C".into(), 30));
        assert_eq!(set(ConditionStatus::Unknown, "D", 40), ("D".into(), 40));
    }

    #[test]
    fn a_message_is_cut_at_its_bound() {
        let mut conditions = Vec::new();
        set_condition(&mut conditions, "Ready", true.into(), "A", "ä".repeat(2_000), None, Micros(0));
        assert_eq!(conditions[0].message.chars().count(), MESSAGE_MAX);
    }
}
