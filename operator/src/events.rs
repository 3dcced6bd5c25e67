//! Events: what happened to a resource, for `kubectl describe`. Losing one costs nothing, so failures are only logged.

use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Resource, ResourceExt as _};
use tracing::warn;

/// The most characters of a note.
const NOTE_MAX: usize = 1_000;

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) warning: bool,
    /// One CamelCase word. Repeats within minutes show the first text only, so what changes belongs here.
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

impl Note {
    pub(crate) fn normal(reason: &'static str, text: impl Into<String>) -> Self {
        Self { warning: false, reason, text: text.into() }
    }

    pub(crate) fn warning(reason: &'static str, text: impl Into<String>) -> Self {
        Self { warning: true, reason, text: text.into() }
    }
}

/// Tells one note of `object`.
pub(crate) async fn tell<K: Resource<DynamicType = ()>>(recorder: &Recorder, object: &K, note: &Note) {
    let mut text = note.text.clone();
    if let Some((end, _)) = text.char_indices().nth(NOTE_MAX) {
        text.truncate(end);
    }
    let event = Event {
        type_: if note.warning { EventType::Warning } else { EventType::Normal },
        reason: note.reason.to_owned(),
        note: Some(text),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, &object.object_ref(&())).await {
        warn!(
            object = object.name_any(),
            reason = note.reason,
            error = &error as &dyn std::error::Error,
            "event not written"
        );
    }
}
