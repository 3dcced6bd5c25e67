//! What a store on disk promises: what was committed comes back, whatever tears; what is damaged is refused, never skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use braid_log::disk::{OpenError, Options};
use braid_log::{AppendError, DiskStore, Lsn, Record, SegmentKey, Store};
use braid_model::{Incarnation, Micros, Offset, SegmentId};
use bytes::Bytes;
use proptest::prelude::*;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("braid-log-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The log files in order.
    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|suffix| suffix == "braid"));
        files.sort();
        files
    }

    fn copy(&self) -> Self {
        let copy = Self::new();
        for file in self.files() {
            fs::copy(&file, copy.0.join(file.file_name().unwrap())).unwrap();
        }
        copy
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SMALL: Options = Options { file_bytes: 600, tail_bytes: 0, pending_bytes: 1 << 20 };

const fn key(segment: u64) -> SegmentKey {
    SegmentKey { incarnation: Incarnation(7), segment: SegmentId(segment) }
}

fn note(body: &str) -> Record {
    let body = Bytes::copy_from_slice(body.as_bytes());
    Record { kind: 9, key: key(0), base: Offset(0), count: 0, time: Micros(1), body }
}

fn entry(segment: u64, base: u64, count: u32, bytes: usize) -> Record {
    let body = Bytes::from(vec![base as u8; bytes]);
    Record { kind: 1, key: key(segment), base: Offset(base), count, time: Micros(base), body }
}

fn replayed(store: &mut DiskStore) -> Vec<Record> {
    let mut records = Vec::new();
    store
        .replay(&mut |lsn, record| {
            assert_eq!(lsn, Lsn(records.len() as u64 + 1));
            records.push(record);
        })
        .unwrap();
    records
}

/// Appends each group and commits it at once.
fn write(folder: &Path, options: Options, groups: &[Vec<Record>]) {
    let (mut store, mut committer) = DiskStore::open(folder, options).unwrap();
    for group in groups {
        for record in group {
            store.append(record.clone()).unwrap();
        }
        assert_eq!(committer.commit().unwrap(), store.last());
    }
}

#[test]
fn what_was_committed_is_found_again_and_opening_twice_is_opening_once() {
    let folder = Folder::new();
    let groups = vec![
        vec![note("a"), entry(1, 0, 3, 200)],
        vec![entry(1, 3, 1, 200), entry(2, 0, 9, 200)],
        vec![note("b"), entry(1, 4, 2, 500)],
    ];
    write(&folder.0, SMALL, &groups);
    assert!(folder.files().len() > 1, "the test is about several files");
    for _ in 0..2 {
        let (mut store, _committer) = DiskStore::open(&folder.0, SMALL).unwrap();
        assert_eq!(replayed(&mut store), groups.concat());
        let bases = |store: &mut DiskStore, from, until, bytes| -> Vec<u64> {
            let read = store.read(key(1), Offset(from), Offset(until), bytes).unwrap();
            read.iter().map(|record| record.base.0).collect()
        };
        assert_eq!(bases(&mut store, 0, 9, 9_999), [0, 3, 4]);
        assert_eq!(bases(&mut store, 2, 4, 9_999), [0, 3]);
        assert_eq!(bases(&mut store, 3, 9, 0), [3]);
        assert_eq!(bases(&mut store, 5, 9, 9_999), [4]);
        assert_eq!(bases(&mut store, 6, 9, 9_999), Vec::<u64>::new());
        assert_eq!(store.read(key(1), Offset(4), Offset(6), 1).unwrap(), [entry(1, 4, 2, 500)]);
        assert_eq!(store.last(), Lsn(6));
    }
}

#[test]
fn a_reader_finds_what_is_not_committed_yet() {
    let folder = Folder::new();
    let (mut store, _committer) = DiskStore::open(&folder.0, SMALL).unwrap();
    store.append(entry(1, 0, 3, 10)).unwrap();
    store.append(entry(1, 3, 3, 10)).unwrap();
    assert_eq!(store.read(key(1), Offset(0), Offset(9), 999).unwrap().len(), 2);
    store.forget(key(1));
    assert!(store.read(key(1), Offset(0), Offset(9), 999).unwrap().is_empty());
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_and_the_store_goes_on() {
    let whole = Folder::new();
    let big = Options { file_bytes: 1 << 20, ..SMALL };
    let committed = vec![note("first"), entry(1, 0, 2, 40)];
    write(&whole.0, big, std::slice::from_ref(&committed));
    let synced = fs::metadata(&whole.files()[0]).unwrap().len();
    let torn = vec![entry(1, 2, 1, 50), note("second"), entry(1, 3, 1, 30)];
    write(&whole.0, big, std::slice::from_ref(&torn));
    let all = [committed.clone(), torn].concat();
    let end = fs::metadata(&whole.files()[0]).unwrap().len();
    for cut in synced..=end {
        let folder = whole.copy();
        let file = fs::File::options().write(true).open(&folder.files()[0]).unwrap();
        file.set_len(cut).unwrap();
        let (mut store, mut committer) = DiskStore::open(&folder.0, big).unwrap();
        let found = replayed(&mut store);
        assert!(found.len() >= committed.len() && found == all[..found.len()], "cut at {cut}");
        assert!(cut < end || found.len() == all.len());
        // What is appended next takes the place of what was cut, and a second opening finds just that.
        store.append(note("third")).unwrap();
        committer.commit().unwrap();
        drop(store);
        let (mut store, _committer) = DiskStore::open(&folder.0, big).unwrap();
        let again = replayed(&mut store);
        assert_eq!(again[..found.len()], found, "cut at {cut}");
        assert_eq!(again[found.len()..], [note("third")], "cut at {cut}");
    }
}

#[test]
fn a_write_whose_pages_came_out_of_order_is_cut_too() {
    let folder = Folder::new();
    let big = Options { file_bytes: 1 << 20, ..SMALL };
    write(&folder.0, big, &[vec![note("kept")], vec![entry(1, 0, 1, 100), entry(1, 1, 1, 100)]]);
    let file = &folder.files()[0];
    let mut bytes = fs::read(file).unwrap();
    // The first record of the last write never reached the disk, the second one did.
    let second = bytes.len() - 168;
    bytes[second - 168..second].fill(0);
    fs::write(file, bytes).unwrap();
    let (mut store, _committer) = DiskStore::open(&folder.0, big).unwrap();
    assert_eq!(replayed(&mut store), [note("kept")]);
}

#[test]
fn damage_before_the_last_write_is_refused_at_every_byte_and_names_file_offset_and_reason() {
    let whole = Folder::new();
    write(
        &whole.0,
        SMALL,
        &[vec![note("a"), entry(1, 0, 2, 100)], vec![entry(1, 2, 2, 60)], vec![entry(1, 4, 1, 500)]],
    );
    let files = whole.files();
    assert_eq!(files.len(), 2);
    for at in 0..fs::metadata(&files[0]).unwrap().len() {
        // Bytes that no check covers carry nothing: the rest of a file's head.
        if (5..8).contains(&at) || (20..32).contains(&at) {
            continue;
        }
        let folder = whole.copy();
        let file = &folder.files()[0];
        let mut bytes = fs::read(file).unwrap();
        bytes[at as usize] ^= 0x40;
        fs::write(file, bytes).unwrap();
        match DiskStore::open(&folder.0, SMALL) {
            Err(OpenError::Damaged { file: named, at: found, reason }) => {
                assert_eq!(named, file.display().to_string());
                assert!(found <= at && !reason.is_empty(), "damage at {at} was named at {found}");
            }
            Err(e) => panic!("byte {at}: {e}"),
            Ok(_) => panic!("byte {at}: opened"),
        }
    }
}

#[test]
fn damage_in_the_last_file_is_refused_if_a_later_write_shows_that_it_was_synced() {
    let folder = Folder::new();
    let big = Options { file_bytes: 1 << 20, ..SMALL };
    write(&folder.0, big, &[vec![note("a")], vec![note("b")], vec![note("c")]]);
    let file = &folder.files()[0];
    let mut bytes = fs::read(file).unwrap();
    bytes[32 + 68] ^= 1;
    fs::write(file, bytes).unwrap();
    let opened = DiskStore::open(&folder.0, big).map(drop);
    assert!(matches!(opened, Err(OpenError::Damaged { at: 32, .. })), "{opened:?}");
}

#[test]
fn a_missing_file_is_damage() {
    let folder = Folder::new();
    write(&folder.0, SMALL, &[vec![entry(1, 0, 1, 500)], vec![entry(1, 1, 1, 500)], vec![entry(1, 2, 1, 500)]]);
    fs::remove_file(&folder.files()[1]).unwrap();
    let opened = DiskStore::open(&folder.0, SMALL).map(drop);
    assert!(matches!(opened, Err(OpenError::Damaged { at: 0, .. })), "{opened:?}");
}

#[test]
fn a_file_that_was_being_made_is_made_again() {
    let folder = Folder::new();
    write(&folder.0, SMALL, &[vec![entry(1, 0, 1, 500)]]);
    for bytes in [0, 5, 32] {
        fs::write(folder.0.join("00000000000000000002.braid"), vec![0; bytes]).unwrap();
        let (mut store, _committer) = DiskStore::open(&folder.0, SMALL).unwrap();
        assert_eq!(replayed(&mut store), [entry(1, 0, 1, 500)]);
        drop(store);
    }
    write(&folder.0, SMALL, &[vec![entry(1, 1, 1, 500)]]);
    let (mut store, _committer) = DiskStore::open(&folder.0, SMALL).unwrap();
    assert_eq!(replayed(&mut store).len(), 2);
}

#[test]
fn a_store_is_open_once() {
    let folder = Folder::new();
    let (_store, _committer) = DiskStore::open(&folder.0, SMALL).unwrap();
    let again = DiskStore::open(&folder.0, SMALL).map(drop);
    assert!(matches!(again, Err(OpenError::Locked { .. })), "{again:?}");
}

#[test]
fn bounds_are_kept_and_named() {
    let folder = Folder::new();
    let (mut store, mut committer) = DiskStore::open(&folder.0, Options { pending_bytes: 300, ..SMALL }).unwrap();
    let large = Record { body: Bytes::from(vec![0; (9 << 20) + 1]), ..note("") };
    assert_eq!(store.append(large), Err(AppendError::TooLarge { bytes: (9 << 20) + 1, max: 9 << 20 }));
    store.append(entry(1, 0, 1, 100)).unwrap();
    assert_eq!(store.append(entry(1, 2, 1, 1)), Err(AppendError::Gap { key: key(1), end: Offset(1), sent: Offset(2) }));
    assert_eq!(store.append(entry(1, 1, 1, 100)), Err(AppendError::Behind { bytes: 336, max: 300 }));
    committer.commit().unwrap();
    assert_eq!(store.append(entry(1, 1, 1, 100)), Ok(Lsn(2)));
}

#[test]
fn after_a_failed_write_the_store_takes_nothing() {
    let folder = Folder::new();
    let (mut store, mut committer) = DiskStore::open(&folder.0, SMALL).unwrap();
    store.append(note("a")).unwrap();
    // The next file cannot be made where a folder has its name.
    committer.commit().unwrap();
    fs::create_dir(folder.0.join("00000000000000000002.braid")).unwrap();
    store.append(entry(1, 0, 1, 550)).unwrap();
    let failed = committer.commit();
    assert!(matches!(failed, Err(braid_log::disk::CommitError::Failed { .. })), "{failed:?}");
    assert!(matches!(store.append(note("b")), Err(AppendError::Failed { .. })));
    assert!(!committer.wait(), "a failed committer has nothing to do");
}

#[test]
fn a_committer_ends_with_its_store_after_the_last_write() {
    let folder = Folder::new();
    let (mut store, mut committer) = DiskStore::open(&folder.0, SMALL).unwrap();
    store.append(note("a")).unwrap();
    drop(store);
    assert!(committer.wait());
    assert_eq!(committer.commit().unwrap(), Lsn(1));
    assert!(!committer.wait());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn recovery_of_what_was_written_is_what_was_written(
        groups in prop::collection::vec(prop::collection::vec((0u64..3, 0u32..4, 0usize..200), 1..6), 1..8),
    ) {
        let mut ends = [0u64; 3];
        let mut record = |(segment, count, bytes): (u64, u32, usize)| {
            let base = &mut ends[segment as usize];
            let made = if count == 0 { note(&"x".repeat(bytes)) } else { entry(segment, *base, count, bytes) };
            *base += u64::from(count);
            made
        };
        let groups: Vec<Vec<Record>> =
            groups.into_iter().map(|group| group.into_iter().map(&mut record).collect()).collect();
        let folder = Folder::new();
        // Half of it in one life, half in the next.
        let half = groups.len() / 2;
        write(&folder.0, SMALL, &groups[..half]);
        write(&folder.0, SMALL, &groups[half..]);
        let (mut store, _committer) = DiskStore::open(&folder.0, SMALL).unwrap();
        let all = groups.concat();
        prop_assert_eq!(replayed(&mut store), all.clone());
        for segment in 0..3 {
            let expected: Vec<_> =
                all.iter().filter(|record| record.is_entry() && record.key == key(segment)).cloned().collect();
            prop_assert_eq!(store.read(key(segment), Offset(0), Offset(u64::MAX), 1 << 20).unwrap(), expected);
        }
    }
}
