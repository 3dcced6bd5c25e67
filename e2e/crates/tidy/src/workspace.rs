//! Packages and what they name, as `cargo metadata` tells it. Must never read a manifest by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The workspace with its resolved dependencies for the build target, dev and build dependencies told apart.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
    /// The folder of the root `Cargo.toml`.
    pub workspace_root: PathBuf,
}

/// One package, ours or not.
#[derive(Debug, Deserialize)]
pub struct Package {
    id: String,
    /// The name in its `[package]` table.
    pub name: String,
    /// Its `Cargo.toml`.
    pub manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    /// Libraries, programs, tests, benches and build scripts.
    pub targets: Vec<Target>,
}

/// A dependency as the manifest names it.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The package it names, also if it is renamed.
    pub name: String,
    kind: Option<String>,
    /// Whether `default-features` was left on.
    pub uses_default_features: bool,
    /// Features asked for.
    pub features: Vec<String>,
}

/// A thing cargo compiles on its own.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// `lib`, `bin`, `test`, `bench`, `example`, `custom-build` and so on.
    pub kind: Vec<String>,
    /// Its first file.
    pub src_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

impl Workspace {
    /// The workspace that this crate is in. Asks no registry.
    pub fn load() -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let answer = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--offline"])
            .arg("--filter-platform=x86_64-unknown-linux-gnu")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .context("start `cargo metadata`")?;
        ensure!(answer.status.success(), "`cargo metadata`: {}", String::from_utf8_lossy(&answer.stderr));
        serde_json::from_slice(&answer.stdout).context("read the answer of `cargo metadata`")
    }

    /// Our own packages, by name.
    pub fn members(&self) -> BTreeMap<&str, &Package> {
        let ours = self.packages.iter().filter(|p| self.workspace_members.contains(&p.id));
        ours.map(|p| (p.name.as_str(), p)).collect()
    }

    /// Every package that is linked into `package`, itself excluded.
    ///
    /// Features are unified over the whole workspace, so an optional dependency counts as soon as one member asks for it.
    pub fn reach(&self, package: &Package) -> BTreeSet<&str> {
        let nodes: BTreeMap<&str, &Node> = self.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
        let names: BTreeMap<&str, &str> = self.packages.iter().map(|p| (p.id.as_str(), p.name.as_str())).collect();
        let mut seen = BTreeSet::new();
        let mut open = vec![package.id.as_str()];
        while let Some(id) = open.pop() {
            let linked = nodes[id].deps.iter().filter(|edge| edge.dep_kinds.iter().any(|k| k.kind.is_none()));
            open.extend(linked.map(|edge| edge.pkg.as_str()).filter(|id| seen.insert(*id)));
        }
        seen.into_iter().map(|id| names[id]).collect()
    }
}

impl Package {
    /// What its `[dependencies]` name; not those for tests and build scripts.
    pub fn names(&self) -> impl Iterator<Item = &Dependency> {
        self.dependencies.iter().filter(|d| d.kind.is_none())
    }
}
