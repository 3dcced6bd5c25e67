//! Many record files as one, in order of time. Holds one line of each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use crate::record::Record;

pub(super) struct Merged {
    files: Vec<Source>,
    /// (time, file): the earliest line of each file.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
}

struct Source {
    name: String,
    reader: Box<dyn BufRead>,
    line: String,
    number: u64,
    /// Within a file, times do not fall: one that does counts as the one before.
    time: u64,
}

/// One line, with its place.
pub(super) struct Line {
    file: usize,
    name: String,
    number: u64,
    text: String,
}

#[derive(Deserialize)]
struct Time {
    t: u64,
}

impl Merged {
    pub(super) fn open(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut merged = Self { files: Vec::new(), heads: BinaryHeap::new() };
        for path in paths {
            let reader: Box<dyn BufRead> = if path == Path::new("-") {
                Box::new(BufReader::new(std::io::stdin()))
            } else {
                let file = File::open(path).with_context(|| format!("record file `{}`", path.display()))?;
                Box::new(BufReader::with_capacity(1 << 18, file))
            };
            let name = path.display().to_string();
            merged.files.push(Source { name, reader, line: String::new(), number: 0, time: 0 });
            merged.advance(merged.files.len() - 1)?;
        }
        Ok(merged)
    }

    /// The earliest line not read yet; of equal times, that of the file named first.
    pub(super) fn next_line(&mut self) -> anyhow::Result<Option<Line>> {
        let Some(Reverse((_, file))) = self.heads.pop() else { return Ok(None) };
        let source = &mut self.files[file];
        let text = std::mem::take(&mut source.line);
        Ok(Some(Line { file, name: source.name.clone(), number: source.number, text }))
    }

    /// Reads on in the line's file, into the same memory.
    pub(super) fn give_back(&mut self, line: Line) -> anyhow::Result<()> {
        self.files[line.file].line = line.text;
        self.advance(line.file)
    }

    fn advance(&mut self, file: usize) -> anyhow::Result<()> {
        let source = &mut self.files[file];
        loop {
            source.line.clear();
            let read = source.reader.read_line(&mut source.line).with_context(|| format!("`{}`", source.name))?;
            if read == 0 {
                return Ok(());
            }
            source.number += 1;
            // A process that was killed may leave half a line at its end.
            if !source.line.ends_with('\n') && serde_json::from_str::<Time>(&source.line).is_err() {
                return Ok(());
            }
            if source.line.trim().is_empty() {
                continue;
            }
            let time: Time = serde_json::from_str(&source.line)
                .with_context(|| format!("`{}` line {}", source.name, source.number))?;
            source.time = source.time.max(time.t);
            self.heads.push(Reverse((source.time, file)));
            return Ok(());
        }
    }
}

impl Line {
    pub(super) fn parse(&self) -> anyhow::Result<Record<'_>> {
        serde_json::from_str(&self.text).with_context(|| format!("`{}` line {}", self.name, self.number))
    }
}
