//! Writes every kind's definition beside `crds/Cargo.toml`: `cargo run -p braid-crds --example crdgen`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, definition) in braid_crds::schema::definitions() {
        // Some YAML readers take a bare time for a date.
        let yaml = serde_yaml::to_string(&definition)?
            .replace("lastTransitionTime: 1970-01-01T00:00:00Z", "lastTransitionTime: \"1970-01-01T00:00:00Z\"");
        std::fs::write(folder.join(file), format!("# Written by crdgen from the types in src/; do not edit.\n{yaml}"))?;
        println!("crds/{file}");
    }
    Ok(())
}
