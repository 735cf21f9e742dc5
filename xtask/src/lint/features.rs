//! Every library with no feature, and with each of its features alone: what one feature needs must not come with another.

use std::fmt;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::cargo;

/// `default` is others together. The rest say which tests are built; no library is another one with them.
const NOT_ALONE: [&str; 3] = ["default", "mysql-server", "services"];

/// A package with at most one of its features.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    package: String,
    feature: Option<String>,
}

impl Selection {
    /// For cargo.
    pub(crate) fn args(&self) -> Vec<String> {
        let mut args = ["--package", &self.package, "--no-default-features"].map(str::to_owned).to_vec();
        args.extend(self.feature.iter().flat_map(|feature| ["--features".to_owned(), feature.clone()]));
        args
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.feature {
            None => write!(f, "{} without features", self.package),
            Some(feature) => write!(f, "{} with {feature} alone", self.package),
        }
    }
}

/// All of them, as the manifests have them.
pub(crate) fn selections() -> Result<Vec<Selection>> {
    let mut metadata = cargo::command("metadata");
    let output = metadata.args(["--format-version", "1", "--no-deps", "--locked"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    of(&output.stdout)
}

fn of(metadata: &[u8]) -> Result<Vec<Selection>> {
    let metadata: Metadata = serde_json::from_slice(metadata).context("cargo metadata is not as expected")?;
    let libraries = metadata.packages.into_iter().filter(Package::is_library);
    let selections = libraries.flat_map(|package| {
        let alone =
            package.features.into_keys().filter(|feature| !NOT_ALONE.contains(&feature.as_str())).map(Some);
        let select = move |feature| Selection { package: package.name.clone(), feature };
        [None].into_iter().chain(alone).map(select).collect::<Vec<_>>()
    });
    Ok(selections.collect())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    features: std::collections::BTreeMap<String, Vec<String>>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

impl Package {
    fn is_library(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "lib"))
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn libraries_without_and_with_each_feature_alone() {
        let metadata = br#"{"packages": [
            {"name": "a", "features": {"default": ["x"], "services": ["y"], "x": [], "y": ["x"]}, "targets": [{"kind": ["lib"]}, {"kind": ["test"]}]},
            {"name": "b", "features": {"z": []}, "targets": [{"kind": ["bin"]}]},
            {"name": "c", "features": {}, "targets": [{"kind": ["lib"]}]}
        ]}"#;
        let selections = of(metadata).expect("metadata");
        let shown: Vec<String> = selections.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a without features", "a with x alone", "a with y alone", "c without features"]);
        assert_eq!(selections[2].args(), ["--package", "a", "--no-default-features", "--features", "y"]);
    }
}
