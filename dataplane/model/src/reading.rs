//! Where each bucket of a dispatcher stands in the log, and where to read next.
//!
//! One shared reader, the *head*, serves every bucket that has kept up. A bucket whose entry could not go out is *parked*
//! at that entry and the head moves on; when it may flow again, a *catch-up* slice reads from its place towards the head,
//! takes along every other parked bucket it meets, and puts those that reach the head back on it. So a held-up bucket
//! never blocks another, and memory is one offset per bucket whatever the backlog. Knows nothing of owners or credit.

use alloc::vec;
use alloc::vec::Vec;

use crate::offsets::OffsetRange;
use crate::{BucketIndex, Offset};

/// Which reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The shared one: only forward.
    Head,
    /// One slice of catching up.
    Catch,
}

/// Where one bucket stands: of its entries before there nothing is left to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the head.
    Head,
    /// Behind the head and free: where the running slice passes it, it moves along.
    At(Offset),
    /// Behind the head and put there during the running slice: the slice does not move it.
    Parked(Offset),
}

/// The places of all buckets.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    places: Vec<Place>,
    head: Offset,
    /// The running slice: where it began and how far it has come.
    slice: Option<(Offset, Offset)>,
    /// The bucket whose place began the last slice.
    turn: u32,
}

impl Reading {
    pub(crate) fn new(buckets: usize, start: Offset) -> Self {
        Self { places: vec![Place::Head; buckets], head: start, slice: None, turn: 0 }
    }

    pub(crate) fn head(&self) -> Offset {
        self.head
    }

    pub(crate) fn is_at_head(&self, bucket: BucketIndex) -> bool {
        self.places[bucket.0 as usize] == Place::Head
    }

    /// Whether a slice that runs could still move `bucket`.
    pub(crate) fn is_catching(&self, bucket: BucketIndex) -> bool {
        match (self.places[bucket.0 as usize], self.slice) {
            (Place::At(at), Some((from, _))) => from <= at,
            _ => false,
        }
    }

    /// Where `bucket` stands.
    pub(crate) fn position(&self, bucket: BucketIndex) -> Offset {
        match self.places[bucket.0 as usize] {
            Place::Head => self.head,
            Place::Parked(at) => at,
            Place::At(at) => match self.slice {
                Some((from, reached)) if from <= at => at.max(reached),
                _ => at,
            },
        }
    }

    /// Whether an entry of `bucket` that `lane` has just read is the next one the bucket needs.
    ///
    /// False if the bucket has it behind it, or stands before something this reader has already passed.
    pub(crate) fn is_next(&self, lane: Lane, bucket: BucketIndex, entry: OffsetRange) -> bool {
        match (lane, self.places[bucket.0 as usize]) {
            (Lane::Head, place) => place == Place::Head && self.head < entry.to(),
            (Lane::Catch, Place::At(_)) => self.is_catching(bucket) && self.position(bucket) < entry.to(),
            (Lane::Catch, Place::Head | Place::Parked(_)) => false,
        }
    }

    /// `lane` has passed `entry`.
    pub(crate) fn passed(&mut self, lane: Lane, entry: OffsetRange) {
        match (lane, &mut self.slice) {
            (Lane::Head, _) => self.head = self.head.max(entry.to()),
            (Lane::Catch, Some((_, reached))) => *reached = (*reached).max(entry.to()),
            (Lane::Catch, None) => {}
        }
    }

    /// `bucket` is held up: it stays where it stands while its reader goes on.
    pub(crate) fn park(&mut self, bucket: BucketIndex) {
        self.places[bucket.0 as usize] = Place::Parked(self.position(bucket));
    }

    /// `bucket` starts again at `at`, or before it if it stands there already.
    pub(crate) fn rewind(&mut self, bucket: BucketIndex, at: Offset) {
        if at < self.position(bucket) {
            self.places[bucket.0 as usize] = Place::Parked(at);
        }
    }

    /// Ends the running slice: who moved along with it stands where it came, or at the head.
    pub(crate) fn end_slice(&mut self) {
        if self.places.iter().all(|place| *place == Place::Head) {
            self.slice = None;
            return;
        }
        for i in 0..self.places.len() as u32 {
            let at = self.position(BucketIndex(i));
            self.places[i as usize] = if at < self.head { Place::At(at) } else { Place::Head };
        }
        self.slice = None;
    }

    /// Begins a slice at the place of the next bucket behind the head, in turn, that `may_flow`. The last slice has ended.
    pub(crate) fn begin_slice(&mut self, may_flow: impl Fn(BucketIndex) -> bool) -> Option<Offset> {
        let n = self.places.len() as u32;
        let next = (1..=n).map(|step| BucketIndex((self.turn + step) % n));
        let bucket = { next }.find(|&bucket| !self.is_at_head(bucket) && may_flow(bucket))?;
        self.turn = bucket.0;
        let from = self.position(bucket);
        self.slice = Some((from, from));
        Some(from)
    }

    /// The running slice has nothing more to find before the head.
    pub(crate) fn reach_head(&mut self) {
        if let Some((_, reached)) = &mut self.slice {
            *reached = (*reached).max(self.head);
        }
    }
}
