//! What a node promises, told frame by frame: no sockets, no clock, a store in memory that syncs when it is told.

mod bench;
mod consume;
mod control;
mod group;
mod limits;
mod publish;
mod restart;
