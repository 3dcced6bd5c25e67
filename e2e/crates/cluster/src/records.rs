//! What client pods recorded, read back: who handled which key when.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

/// One line of a record file.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// Microseconds since 1970.
    pub(crate) at: u64,
    pub(crate) event: String,
    pub(crate) member: String,
    pub(crate) segment: u64,
    pub(crate) key: String,
}

/// All records of some files, by time. Lines that a kill cut short are left out.
pub(crate) fn read(files: &[&Path]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for file in files {
        for line in std::fs::read_to_string(file)?.lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
            records.push(Record {
                at: line["t"].as_u64().unwrap_or_default(),
                event: text("event"),
                member: text("member"),
                segment: line["segment"].as_u64().unwrap_or_default(),
                key: text("key"),
            });
        }
    }
    records.sort_by_key(|r| r.at);
    Ok(records)
}

/// Each key's members in the order in which they first handled it, of deliveries from `segment` if given.
pub(crate) fn members_by_key(records: &[Record], segment: Option<u64>) -> BTreeMap<String, Vec<String>> {
    let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in records.iter().filter(|r| r.event == "delivered" && segment.is_none_or(|s| s == r.segment)) {
        let of_key = members.entry(record.key.clone()).or_default();
        if !of_key.contains(&record.member) {
            of_key.push(record.member.clone());
        }
    }
    members
}

/// How many records of one event there are.
pub(crate) fn count(records: &[Record], event: &str) -> usize {
    records.iter().filter(|r| r.event == event).count()
}
