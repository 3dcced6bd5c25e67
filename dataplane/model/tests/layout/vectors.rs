//! Vectors of the reference: hashing, equal width, initial ranges, and the worked DAG of its section 1.8.

use braid_model::layout::{Layout, Parts, Segment, create};
use braid_model::operation::Request;
use braid_model::{BucketIndex, Buckets, Epoch, HashRange, KeyHash, SegmentId};
use serde::Deserialize;
use std::collections::BTreeMap;

use crate::world::{World, prune};

#[derive(Deserialize)]
struct Vectors {
    hashing: Vec<Hashed>,
    equal_width: BTreeMap<String, Vec<u32>>,
    initial: Vec<Initial>,
}

#[derive(Deserialize)]
struct Hashed {
    key: String,
    raw: String,
    segment: u16,
    bucket: u16,
}

#[derive(Deserialize)]
struct Initial {
    segments: u32,
    budget: u32,
    ranges: Vec<(u16, u16)>,
    buckets: u32,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors/pulsar.json")).unwrap()
}

fn n(buckets: u32) -> Buckets {
    Buckets::new(buckets).unwrap()
}

#[test]
fn a_key_hashes_to_its_place_on_both_rings() {
    let rows = vectors().hashing;
    assert_eq!(rows.len(), 11);
    for row in rows {
        let hash = KeyHash::of(row.key.as_bytes());
        let found = (format!("{:08x}", hash.0), hash.route(), hash.bucket());
        assert_eq!(found, (row.raw, row.segment, row.bucket), "key `{}`", row.key);
    }
}

#[test]
fn a_key_lies_in_the_bucket_of_the_reference_for_n_4_3_and_8() {
    let rows = [
        ("", [0, 0, 0]),
        ("a", [1, 1, 3]),
        ("b", [1, 1, 3]),
        ("key-0", [3, 2, 7]),
        ("key-1", [0, 0, 0]),
        ("order-42", [2, 1, 5]),
        ("customer-99", [3, 2, 7]),
        ("hello", [3, 2, 7]),
        ("alpha", [0, 0, 0]),
        ("NONE_KEY", [2, 2, 5]),
        ("k\u{e9}y", [1, 1, 2]),
    ];
    for (key, expected) in rows {
        let hash = KeyHash::of(key.as_bytes()).bucket();
        assert_eq!([4, 3, 8].map(|count| n(count).of(hash).0), expected, "key `{key}`");
    }
}

#[test]
fn buckets_are_of_equal_width() {
    let rows = vectors().equal_width;
    assert_eq!(rows.len(), 7);
    for (count, borders) in rows {
        let buckets = n(count.parse().unwrap());
        let found: Vec<u32> = (1..buckets.count()).map(|i| buckets.start(BucketIndex(i))).collect();
        assert_eq!(found, borders, "N {count}");
    }
}

#[test]
fn a_new_topic_has_the_ranges_and_buckets_of_the_reference() {
    let rows = vectors().initial;
    assert_eq!(rows.len(), 5);
    for row in rows {
        let children = create(row.segments, row.budget, n(1024)).unwrap();
        let ranges: Vec<(u16, u16)> = children.iter().map(|child| (child.range.start(), child.range.end())).collect();
        assert_eq!(ranges, row.ranges, "{} segments", row.segments);
        assert!(children.iter().all(|child| child.buckets == n(row.buckets)), "{} segments", row.segments);
        assert!((0..).zip(&children).all(|(i, child)| child.id == SegmentId(i)));
    }
}

#[test]
fn the_worked_dag_of_the_reference_comes_out() {
    let mut world = World::new(3);
    world.run(&Request::Create { segments: 1, budget: 4 });
    world.run(&Request::Split { segment: SegmentId(0), into: 2 });
    world.run(&Request::Rebucket { segments: vec![SegmentId(1)], buckets: n(8) });
    world.run(&Request::Merge { a: SegmentId(2), b: SegmentId(3) });
    let layout = world.layout();
    // Ours starts at epoch 1, the reference at 0.
    assert_eq!((layout.epoch(), layout.next_segment_id()), (Epoch(4), SegmentId(5)));
    type Row = (&'static str, u32, &'static [u64], &'static [u64], u64, Option<u64>, u32);
    let rows: [Row; 5] = [
        ("0000-ffff", 4, &[], &[1, 2], 1, Some(2), 0),
        ("0000-7fff", 2, &[0], &[3], 2, Some(3), 0),
        ("8000-ffff", 2, &[0], &[4], 2, Some(4), 0),
        ("0000-7fff", 8, &[1], &[4], 3, Some(4), 0),
        ("0000-ffff", 10, &[3, 2], &[], 4, None, 1),
    ];
    for (segment, (range, buckets, parents, children, created, sealed, depth)) in layout.segments().iter().zip(rows) {
        assert_eq!(segment.range.to_string(), range);
        assert_eq!(segment.buckets, n(buckets));
        assert_eq!(segment.parents, ids(parents), "parents of {}", segment.id);
        assert_eq!(segment.children, ids(children), "children of {}", segment.id);
        assert_eq!((segment.created_epoch, segment.sealed_epoch()), (Epoch(created), sealed.map(Epoch)));
        assert_eq!(segment.merge_depth, depth);
    }
    assert_eq!(layout.ancestors(SegmentId(4)), ids(&[0, 1, 2, 3]).into_iter().collect());
    assert_eq!(layout.capacity(), 10);

    let pruned = Layout::new(prune(layout.parts(), &[SegmentId(0)])).unwrap();
    assert_eq!(pruned.roots().map(|segment| segment.id).collect::<Vec<_>>(), ids(&[1, 2]));
    assert_eq!(pruned.segment(SegmentId(4)).map(|segment| segment.merge_depth), Some(1));
}

#[test]
fn children_of_a_split_inherit_the_merge_depth() {
    let mut world = World::new(1);
    world.run(&Request::Create { segments: 1, budget: 4 });
    world.run(&Request::Split { segment: SegmentId(0), into: 2 });
    world.run(&Request::Merge { a: SegmentId(1), b: SegmentId(2) });
    world.run(&Request::Split { segment: SegmentId(3), into: 2 });
    let depths: Vec<u32> = world.layout().segments().iter().map(|segment| segment.merge_depth).collect();
    assert_eq!(depths, [0, 0, 0, 1, 1, 1]);
}

#[test]
fn two_segments_of_two_buckets_split_as_in_the_reference() {
    let mut world = World::new(1);
    world.run(&Request::Create { segments: 2, budget: 4 });
    world.run(&Request::Split { segment: SegmentId(0), into: 2 });
    let found: Vec<(u64, String, u32)> =
        world.layout().active().map(|s| (s.id.0, s.range.to_string(), s.buckets.count())).collect();
    let expected = [(2, "0000-3fff", 1), (3, "4000-7fff", 1), (1, "8000-ffff", 2)];
    assert_eq!(found, expected.map(|(id, range, buckets)| (id, range.to_owned(), buckets)));
}

#[test]
fn a_key_belongs_to_the_active_segment_that_owns_its_high_half() {
    let mut world = World::new(2);
    world.run(&Request::Create { segments: 3, budget: 4 });
    world.run(&Request::Split { segment: SegmentId(1), into: 5 });
    let layout = world.layout();
    for hash in (0..=u16::MAX).step_by(7).chain([0, 21_844, 21_845, 43_689, 43_690, u16::MAX]) {
        let key = KeyHash(u32::from(hash) << 16 | 0xbeef);
        let owners: Vec<&Segment> = layout.active().filter(|segment| segment.range.contains(hash)).collect();
        assert_eq!(owners, [layout.segment_for(key)], "hash {hash:04x}");
    }
}

#[test]
fn undrained_generations_are_the_longest_undrained_path() {
    // 0 -> (1, 2); 1 -> 3 (rebucket); (3, 2) -> 4: the paths above 4 are 3, 1, 0 and 2, 0.
    let mut world = World::new(1);
    world.run(&Request::Create { segments: 1, budget: 4 });
    world.run(&Request::Split { segment: SegmentId(0), into: 2 });
    world.run(&Request::Rebucket { segments: vec![SegmentId(1)], buckets: n(8) });
    world.run(&Request::Merge { a: SegmentId(3), b: SegmentId(2) });
    let rows: [(&[u64], u32); 5] = [(&[], 3), (&[0], 2), (&[0, 1], 1), (&[0, 2], 2), (&[0, 1, 2, 3], 0)];
    for (drained, expected) in rows {
        let drained = ids(drained);
        let found = world.layout().undrained_generations(|id| drained.contains(&id));
        assert_eq!(found, BTreeMap::from([(SegmentId(4), expected)]), "drained {drained:?}");
    }
}

fn ids(ids: &[u64]) -> Vec<SegmentId> {
    ids.iter().copied().map(SegmentId).collect()
}

#[test]
fn an_empty_layout_owns_nothing() {
    let empty = Parts { epoch: Epoch(1), next_segment_id: SegmentId(0), segments: vec![] };
    assert_eq!(Layout::new(empty).unwrap_err().to_string(), "no active segment owns the hashes `0000` to `ffff`");
    assert_eq!(HashRange::FULL.size(), 65_536);
}
