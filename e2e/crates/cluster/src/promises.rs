//! The promises, in the order in which the issue of the first release lists them.

mod crash_matrix;
mod ground;
mod layout_changes;
mod leaders;
mod load;
mod membership;
mod node_loss;
mod policies;
mod ready;
mod rebucket;
mod rest;

use anyhow::Result;

use crate::cluster::Cluster;

/// One promise and its proof.
pub(crate) struct Promise {
    pub(crate) number: u32,
    pub(crate) title: &'static str,
    pub(crate) needs: Needs,
    /// Whether it disturbs the whole cluster, so that no other may run beside it.
    pub(crate) alone: bool,
    pub(crate) run: fn(&Cluster) -> Result<()>,
}

/// What a proof needs beside an API server.
#[derive(Clone, Copy)]
pub(crate) enum Needs {
    Cluster,
    /// Processes of pods are killed.
    Nodes,
}

/// All promises.
pub(crate) const ALL: &[Promise] = &[
    Promise {
        number: 0,
        title: "the ground: volumes, names, admission, a machine that crashes and comes back",
        needs: Needs::Nodes,
        alone: true,
        run: ground::proof,
    },
    Promise {
        number: 1,
        title: "apply and wait works at once; without operator Ready is Unknown",
        needs: Needs::Cluster,
        alone: true,
        run: ready::proof,
    },
    Promise {
        number: 2,
        title: "5 consumers on a cold 1 x 4: one rebucket to 8, owners 4/0/1 then 0/5/0",
        needs: Needs::Cluster,
        alone: false,
        run: rebucket::cold_topic,
    },
    Promise {
        number: 3,
        title: "10 consumers on 4 x 1: [4,4,4,4] in one epoch; 17: [8,8,8,8]",
        needs: Needs::Cluster,
        alone: false,
        run: rebucket::surplus,
    },
    Promise {
        number: 4,
        title: "3 times the threshold: one split into 4 within 8 s; then merges to the minimum, no reversal",
        needs: Needs::Cluster,
        alone: true,
        run: load::proof,
    },
    Promise {
        number: 5,
        title: "a consumer joins, leaves, is killed: order holds, only moved buckets pause",
        needs: Needs::Nodes,
        alone: false,
        run: membership::proof,
    },
    Promise {
        number: 6,
        title: "operator killed after each write and command of split, merge and rebucket: it finishes",
        needs: Needs::Nodes,
        alone: true,
        run: crash_matrix::proof,
    },
    Promise {
        number: 7,
        title: "data-plane pod killed under load: every acked message is delivered",
        needs: Needs::Nodes,
        alone: true,
        run: node_loss::proof,
    },
    Promise {
        number: 8,
        title: "LayoutChange split, merge, rebucket; each rejection has its reason and changes nothing",
        needs: Needs::Cluster,
        alone: false,
        run: layout_changes::proof,
    },
    Promise {
        number: 9,
        title: "the leader is killed: the other leads in < 20 s; an old term is refused",
        needs: Needs::Nodes,
        alone: true,
        run: leaders::proof,
    },
    Promise {
        number: 10,
        title: "20 topics at rest for 3 minutes: nothing is written but Leases",
        needs: Needs::Cluster,
        alone: true,
        run: rest::proof,
    },
    Promise {
        number: 11,
        title: "policies resolve per field; an invalid combination names both fields and scales nothing",
        needs: Needs::Cluster,
        alone: false,
        run: policies::proof,
    },
];
