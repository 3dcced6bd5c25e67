//! Names of namespaced resources, and sets of them that wait to be looked at.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::Stream;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt as _};
use tokio::sync::Notify;

/// A namespaced resource of some kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Name {
    pub(crate) fn of<K: Resource>(object: &K) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }

    /// Another name in the same namespace.
    pub(crate) fn sibling(&self, name: &str) -> Self {
        Self { namespace: self.namespace.clone(), name: name.to_owned() }
    }

    pub(crate) fn reference<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Resources that somebody wants looked at. A name that waits already is not added twice, so the number of resources bounds it.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    waiting: Mutex<BTreeSet<Name>>,
    notify: Notify,
}

impl Wakes {
    pub(crate) fn wake(&self, name: Name) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        self.notify.notify_one();
    }

    fn take(&self) -> Option<Name> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }

    /// The waiting ones, as they come. For one reader. Cancel-safe.
    pub(crate) fn stream<K: Resource<DynamicType = ()>>(
        self: Arc<Self>,
    ) -> impl Stream<Item = ObjectRef<K>> + Send + 'static {
        futures::stream::unfold(self, |wakes| async move {
            loop {
                if let Some(name) = wakes.take() {
                    return Some((name.reference(), wakes));
                }
                wakes.notify.notified().await;
            }
        })
    }
}
