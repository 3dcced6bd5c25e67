//! The files of the repository, and which of them Rust's `mod` lines reach.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every file that git tracks, relative to `root`; in a copy without git every file outside of dot-folders and build output.
pub fn files(root: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let git = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    if let Ok(answer) = git
        && answer.status.success()
    {
        let names = String::from_utf8(answer.stdout)?;
        let tracked = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
        return Ok(tracked.filter(|name| root.join(name).exists()).collect());
    }
    let mut found = BTreeSet::new();
    walk(root, Path::new(""), &mut found)?;
    Ok(found)
}

fn walk(root: &Path, folder: &Path, found: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if !entry.file_type()?.is_dir() {
            found.insert(path);
        } else if !entry.file_name().to_string_lossy().starts_with('.') && entry.file_name() != "target" {
            walk(root, &path, found)?;
        }
    }
    Ok(())
}

/// Every file that is compiled when `first`, the first file of a target, is: itself and what `mod` and `include!` lines lead to.
///
/// Reads lines, not Rust: a `mod` inside of an inline module is looked for beside that module's file.
pub fn compiled(first: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![(first.to_path_buf(), true)];
    while let Some((file, is_root)) = open.pop() {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let beside = file.parent().expect("a file has a folder").to_path_buf();
        let below = if is_root || file.ends_with("mod.rs") { beside.clone() } else { file.with_extension("") };
        if found.insert(file) {
            open.extend(named(&text, &beside, &below).map(|file| (file, false)));
        }
    }
    found
}

fn named(text: &str, beside: &Path, below: &Path) -> impl Iterator<Item = PathBuf> {
    let mut path = None;
    let mut files = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(given) = quoted(line, "#[path = \"").or_else(|| quoted(line, "include!(\"")) {
            path = Some(beside.join(given));
        }
        if line.contains("include!(\"") {
            files.extend(path.take());
        } else if let Some(module) = module(line) {
            let default = [below.join(format!("{module}.rs")), below.join(module).join("mod.rs")];
            files.extend(path.take().map_or_else(|| default.into(), |path| vec![path]));
        }
    }
    files.into_iter()
}

/// The text between `start` and the next quote.
fn quoted<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(start)?;
    rest.split('"').next()
}

/// The `x` of `mod x;`, whatever its visibility.
fn module(line: &str) -> Option<&str> {
    let (head, _) = line.split_once(';')?;
    let (before, name) = head.rsplit_once("mod ").unwrap_or((head, ""));
    let visibility = before.trim();
    let is_mod = visibility.is_empty() || visibility.starts_with("pub") || visibility.starts_with("#[");
    (is_mod && !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::module;

    #[test]
    fn a_mod_line_names_its_module() {
        let check = |line, expected: Option<&str>| assert_eq!(module(line), expected, "{line}");
        check("mod frame;", Some("frame"));
        check("pub mod frame;", Some("frame"));
        check("pub(crate) mod frame_2; // why", Some("frame_2"));
        check("#[cfg(test)] mod tests;", Some("tests"));
        check("mod tests {", None);
        check("// mod gone;", None);
        check("let x = mod_of(y);", None);
    }
}
