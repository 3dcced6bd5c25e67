//! What the tests of the tree look at: cargo's own view of the workspace, and the files that git keeps.
//!
//! Knows no crate by name; the rules are in `tests/`.

pub mod tree;
pub mod workspace;
