//! One test per promise, on a real cluster: `promise_02_and_what_it_says`. Number 0 is the cluster's own: that it is real.

mod ground;
