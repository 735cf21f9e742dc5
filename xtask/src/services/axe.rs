//! axe-core, the accessibility engine of the browser tests: downloaded once by npm, with its checksum, and kept for later runs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::given;
use crate::{packages, process};

/// Read by us to use a file that is there, and by the tests that run it in the browser.
pub(super) const VARIABLE: &str = "ONCEBOX_TEST_AXE";

const PACKAGE: &str = include_str!("../../axe/package.json");
const LOCK: &str = include_str!("../../axe/package-lock.json");
/// The name in the cache. Change it together with the package: a directory of this name is taken as complete.
const NAME: &str = "axe-core-4.14.0";
/// What the browser gets.
const SCRIPT: &str = "axe.min.js";

/// The script.
pub(super) fn script() -> Result<PathBuf> {
    if let Some(file) = given::read(VARIABLE)?.map(PathBuf::from) {
        if !file.is_absolute() || !file.is_file() {
            bail!("{VARIABLE} is not the absolute path of a file: {}", file.display());
        }
        return Ok(file);
    }
    let cache = packages::cache_dir()?;
    let dir = cache.join(NAME);
    if dir.is_dir() {
        return Ok(dir.join(SCRIPT));
    }
    let instead = format!(", or set {VARIABLE} to the path of {SCRIPT}");
    let npm = packages::find_or_install(
        || packages::on_path("npm"),
        "npm",
        "npm (npm on PATH, which downloads axe-core)",
        &instead,
    )?;
    let _one_at_a_time = packages::lock()?;
    if dir.is_dir() {
        return Ok(dir.join(SCRIPT));
    }

    eprintln!("xtask: downloading {NAME} into {} (1 MB, once)", cache.display());
    let work = tempfile::Builder::new().prefix("download-").tempdir_in(&cache)?;
    fs::write(work.path().join("package.json"), PACKAGE)?;
    fs::write(work.path().join("package-lock.json"), LOCK)?;
    let mut command = Command::new(npm);
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(work.path());
    process::run_logged("npm", &mut command, &work.path().join("npm.log"))
        .with_context(|| format!("cannot download {NAME}. Check the network and npm's settings{instead}"))?;
    // In one step, so that nobody sees half of it.
    fs::rename(work.path().join("node_modules/axe-core"), &dir)
        .with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir.join(SCRIPT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_named_after_the_version_in_the_package() {
        let version = NAME.trim_start_matches("axe-core-");
        for text in [PACKAGE, LOCK] {
            assert!(text.contains(&format!("\"axe-core\": \"{version}\"")));
        }
        assert!(LOCK.contains("\"integrity\": \"sha512-"), "npm compares it with what it gets");
    }
}
