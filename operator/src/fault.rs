//! `BRAID_CRASH_AT=<operation>:<k>`: the process aborts after the k-th API write or command of the first such operation that
//! it planned itself. Tests put an operator to death at every point of an operation with it.
//!
//! Lease and Event writes are not counted. An operation begins with the write that stores its plan and ends when the topic
//! is at rest again: the tells after the commit belong to it.

use std::sync::{Mutex, PoisonError};

use tracing::error;

/// Where to die, if anywhere.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    point: Option<Point>,
    progress: Mutex<Progress>,
}

#[derive(Debug, PartialEq, Eq)]
struct Point {
    operation: String,
    act: u32,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    NotBegun,
    /// On the topic of that uid; so many acts are done.
    Under {
        topic: String,
        acts: u32,
    },
    Over,
}

/// Why the variable is not understood.
#[derive(Debug, thiserror::Error)]
#[error("`BRAID_CRASH_AT` is `{found}`, it must be `<operation>:<k>` with k from 1")]
pub(crate) struct NotAPoint {
    found: String,
}

impl Fault {
    /// What the environment asks for; nowhere if it does not.
    pub(crate) fn from_env() -> Result<Self, NotAPoint> {
        std::env::var("BRAID_CRASH_AT").map_or_else(|_| Ok(Self::default()), |text| Self::at(&text))
    }

    fn at(text: &str) -> Result<Self, NotAPoint> {
        let not_a_point = || NotAPoint { found: text.to_owned() };
        let (operation, act) = text.split_once(':').ok_or_else(not_a_point)?;
        let act = act.parse().ok().filter(|act| *act > 0).ok_or_else(not_a_point)?;
        Ok(Self { point: Some(Point { operation: operation.to_owned(), act }), ..Self::default() })
    }

    /// The plan of an operation was stored.
    pub(crate) fn planned(&self, topic: &str, operation: &str) {
        let Some(point) = &self.point else { return };
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if *progress == Progress::NotBegun && point.operation == operation {
            *progress = Progress::Under { topic: topic.to_owned(), acts: 0 };
        }
        drop(progress);
        self.acted(topic);
    }

    /// A write or a command of that topic is done.
    pub(crate) fn acted(&self, topic: &str) {
        let Some(point) = &self.point else { return };
        if self.count(topic) == Some(point.act) {
            error!(operation = point.operation, act = point.act, "ends here, as BRAID_CRASH_AT says");
            std::process::abort();
        }
    }

    fn count(&self, of: &str) -> Option<u32> {
        match &mut *self.progress.lock().unwrap_or_else(PoisonError::into_inner) {
            Progress::Under { topic, acts } if topic == of => {
                *acts += 1;
                Some(*acts)
            }
            _ => None,
        }
    }

    /// The topic is at rest: what it does from now on belongs to no operation that is counted.
    pub(crate) fn rested(&self, of: &str) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*progress, Progress::Under { topic, .. } if topic == of) {
            *progress = Progress::Over;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_acts_of_the_first_such_operation_are_counted() {
        let fault = Fault::at("split:9").unwrap();
        assert_eq!(fault.count("a"), None);
        fault.planned("a", "create");
        assert_eq!(fault.count("a"), None);
        fault.planned("b", "split");
        assert_eq!((fault.count("a"), fault.count("b"), fault.count("b")), (None, Some(2), Some(3)));
        fault.planned("a", "split");
        assert_eq!(fault.count("a"), None);
        fault.rested("a");
        assert_eq!(fault.count("b"), Some(4));
        fault.rested("b");
        fault.planned("b", "split");
        assert_eq!(fault.count("b"), None);
    }

    #[test]
    fn a_point_is_an_operation_and_a_number_from_1() {
        for bad in ["split", "split:", "split:0", "split:x", ""] {
            assert!(Fault::at(bad).is_err(), "`{bad}`");
        }
        assert_eq!(Fault::at("merge:3").unwrap().point, Some(Point { operation: "merge".into(), act: 3 }));
    }
}
