//! What a layout promises through any history of operations, and what an operation promises through any crash.

mod adopt;
mod rules;
mod steps;
mod vectors;
mod world;
