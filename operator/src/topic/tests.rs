//! Whole lives of topics, with stores in memory: every act of a plan is carried out here as `act` and a node would.

mod life;
mod says;
mod world;
