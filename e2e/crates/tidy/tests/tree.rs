//! What a visitor of the repository sees: few names at the root, no dead file, no long one, nothing of one machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use braid_tidy::tree;
use braid_tidy::workspace::Workspace;

/// Well past the 400 at which one looks for a second idea: between the two a person decides.
const LINES_MAX: usize = 600;

const ROOT: &[&str] = &[
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "crds",
    "dataplane",
    "e2e",
    "manifests",
    "operator",
];

fn rust_files(files: &BTreeSet<PathBuf>) -> impl Iterator<Item = &PathBuf> {
    files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs"))
}

fn text_of(root: &Path, file: &Path) -> Option<String> {
    std::fs::read_to_string(root.join(file)).ok()
}

#[test]
fn the_root_shows_the_system() {
    let root = Workspace::load().unwrap().workspace_root;
    let files = tree::files(&root).unwrap();
    let first = |f: &PathBuf| f.iter().next().map(|name| name.to_string_lossy().into_owned());
    let shown: BTreeSet<String> = files.iter().filter_map(first).filter(|name| !name.starts_with('.')).collect();
    let strange: Vec<&String> = shown.iter().filter(|name| !ROOT.contains(&name.as_str())).collect();
    assert_eq!(strange, Vec::<&String>::new());
}

#[test]
fn every_rust_file_is_compiled() {
    let workspace = Workspace::load().unwrap();
    let root = &workspace.workspace_root;
    let members = workspace.members();
    let firsts = members.values().flat_map(|p| &p.targets).map(|t| t.src_path.as_path());
    let alive: BTreeSet<PathBuf> = firsts.flat_map(tree::compiled).collect();
    let files = tree::files(root).unwrap();
    // A fuzz crate is a workspace of its own, for another compiler.
    let ours = rust_files(&files).filter(|f| !f.components().any(|part| part.as_os_str() == "fuzz"));
    let dead: Vec<&PathBuf> = ours.filter(|f| !alive.contains(&root.join(f))).collect();
    assert_eq!(dead, Vec::<&PathBuf>::new());
}

#[test]
fn a_file_holds_one_idea() {
    let root = Workspace::load().unwrap().workspace_root;
    let files = tree::files(&root).unwrap();
    let lines = |f: &PathBuf| text_of(&root, f).map_or(0, |text| text.lines().count());
    let long: Vec<(&PathBuf, usize)> =
        rust_files(&files).map(|f| (f, lines(f))).filter(|(_, n)| *n > LINES_MAX).collect();
    assert_eq!(long, Vec::<(&PathBuf, usize)>::new(), "past {LINES_MAX} lines there is a second idea");
}

#[test]
fn unsafe_code_gives_its_reason() {
    let workspace = Workspace::load().unwrap();
    let root = &workspace.workspace_root;
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    assert!(
        manifest.contains("unsafe_code = \"deny\"") || manifest.contains("unsafe_code = \"forbid\""),
        "the workspace allows unsafe code"
    );
    for (name, package) in workspace.members() {
        let text = std::fs::read_to_string(&package.manifest_path).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "`{name}` does not take the workspace's lints");
    }
    let files = tree::files(root).unwrap();
    let allowed = concat!("allow(", "unsafe_code");
    for file in rust_files(&files) {
        let text = text_of(root, file).unwrap_or_default();
        for (at, _) in text.match_indices(allowed) {
            let attribute = text[at..].split(']').next().unwrap_or_default();
            assert!(attribute.contains("reason ="), "{}: `{attribute}` gives no reason", file.display());
        }
    }
}

#[test]
fn nothing_names_a_machine() {
    let root = Workspace::load().unwrap().workspace_root;
    let files = tree::files(&root).unwrap();
    let folders = [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")];
    let mut found = Vec::new();
    for file in &files {
        // What is no text has no path to read
        let text = text_of(&root, file).unwrap_or_default();
        let lines = text.lines().enumerate().filter(|(_, line)| folders.iter().any(|f| line.contains(f)));
        found.extend(lines.map(|(at, line)| format!("{}:{}: {}", file.display(), at + 1, line.trim())));
    }
    assert_eq!(found, Vec::<String>::new());
}
