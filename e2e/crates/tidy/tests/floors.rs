//! The floors of the house: a crate exists to forbid a dependency, and here is what each one forbids.

use std::collections::BTreeSet;

use braid_tidy::workspace::Workspace;

struct Floor {
    name: &'static str,
    /// The only crates of ours it may name.
    may: &'static [&'static str],
    /// What it must not name.
    never: &'static [&'static str],
    /// What must not even be linked into it.
    unreachable: &'static [&'static str],
}

/// A new crate takes a row here, or a place under `e2e/crates`, where everything may be named.
#[rustfmt::skip]
const FLOORS: &[Floor] = &[
    Floor { name: "braid-model", may: &[], never: &[], unreachable: &["tokio", "serde", "kube", "quinn", "prost"] },
    Floor { name: "braid-wire", may: &["braid-model"], never: &[], unreachable: &["tokio", "quinn", "kube", "k8s-openapi"] },
    Floor { name: "braid-link", may: &["braid-model", "braid-wire"], never: &[], unreachable: &["kube", "k8s-openapi"] },
    Floor { name: "braid-log", may: &["braid-model"], never: &[], unreachable: &["quinn", "kube", "tokio", "prost"] },
    Floor { name: "braid-engine", may: &["braid-model", "braid-wire", "braid-log"], never: &[], unreachable: &["tokio", "kube", "quinn"] },
    Floor { name: "braid-crds", may: &["braid-model"], never: &["tokio", "quinn", "kube-client", "kube-runtime"], unreachable: &["quinn"] },
    Floor { name: "braid-node", may: &["braid-engine", "braid-model", "braid-wire", "braid-link", "braid-log"], never: &[], unreachable: &["kube", "k8s-openapi"] },
    Floor { name: "braid-client", may: &["braid-engine", "braid-model", "braid-wire", "braid-link"], never: &[], unreachable: &["kube", "k8s-openapi"] },
    Floor { name: "braid-operator", may: &["braid-model", "braid-wire", "braid-link", "braid-crds"], never: &[], unreachable: &[] },
    Floor { name: "braid-cli", may: &["braid-client", "braid-crds", "braid-model"], never: &[], unreachable: &[] },
];

/// Named by one crate only, so that it can be replaced there.
const OWNED: &[(&str, &str)] = &[("quinn", "braid-link"), ("prost", "braid-wire")];

#[test]
fn a_crate_names_only_what_its_floor_allows() {
    let workspace = Workspace::load().unwrap();
    let members = workspace.members();
    let mut wrong = Vec::new();
    for floor in FLOORS {
        let package = members.get(floor.name).unwrap_or_else(|| panic!("no crate `{}`", floor.name));
        for named in package.names().map(|d| d.name.as_str()) {
            let ours = members.contains_key(named);
            if ours && !floor.may.contains(&named) || floor.never.contains(&named) {
                wrong.push(format!("`{}` names `{named}`", floor.name));
            }
            if let Some((_, owner)) = OWNED.iter().find(|(owned, owner)| *owned == named && *owner != floor.name) {
                wrong.push(format!("`{}` names `{named}`, which only `{owner}` may", floor.name));
            }
        }
        let reached = workspace.reach(package);
        wrong.extend(
            floor.unreachable.iter().filter(|n| reached.contains(*n)).map(|n| format!("`{}` links `{n}`", floor.name)),
        );
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_crate_has_a_floor() {
    let workspace = Workspace::load().unwrap();
    let known: BTreeSet<&str> = FLOORS.iter().map(|floor| floor.name).collect();
    let roof = workspace.workspace_root.join("e2e/crates");
    let members = workspace.members();
    let unknown: Vec<&&str> = members
        .iter()
        .filter(|(n, p)| !known.contains(*n) && !p.manifest_path.starts_with(&roof))
        .map(|(n, _)| n)
        .collect();
    assert_eq!(unknown, Vec::<&&str>::new());
}

#[test]
fn the_ground_needs_no_std() {
    let workspace = Workspace::load().unwrap();
    let model = workspace.members()["braid-model"];
    let named: Vec<(&str, bool)> = model.names().map(|d| (d.name.as_str(), d.uses_default_features)).collect();
    assert_eq!(named, [("thiserror", false)]);
    let lib = model.targets.iter().find(|t| t.kind == ["lib"]).unwrap();
    let text = std::fs::read_to_string(&lib.src_path).unwrap();
    assert!(text.lines().any(|line| line.contains("no_std")), "{} has no `no_std`", lib.src_path.display());
}

#[test]
fn the_engine_has_no_disk() {
    let workspace = Workspace::load().unwrap();
    let engine = workspace.members()["braid-engine"];
    let log = engine.names().find(|d| d.name == "braid-log").unwrap();
    assert!(!log.uses_default_features && log.features.is_empty(), "{log:?}");
}
