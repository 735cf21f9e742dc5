//! Kafka's program files, downloaded once by Maven and kept for later runs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Service;
use crate::{packages, process};

const POM: &str = include_str!("../../kafka/pom.xml");
/// The name in the cache. Change it together with the pom: a directory of this name is taken as complete.
const NAME: &str = "kafka-4.3.1";
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// The directory with the jars.
pub(super) fn get() -> Result<PathBuf> {
    let cache = packages::cache_dir()?;
    let jars = cache.join(NAME);
    if jars.is_dir() {
        return Ok(jars);
    }
    let instead = format!(", or set {} to host:port of a running Kafka", Service::Kafka.variable());
    let mvn = packages::find_or_install(
        || packages::on_path("mvn"),
        "maven",
        "Maven (mvn on PATH, which downloads Kafka)",
        &instead,
    )?;
    let _one_at_a_time = packages::lock()?;
    if jars.is_dir() {
        return Ok(jars);
    }

    eprintln!("xtask: downloading {NAME} into {} (45 MB, once)", cache.display());
    let work = tempfile::Builder::new().prefix("download-").tempdir_in(&cache)?;
    fs::write(work.path().join("pom.xml"), POM)?;
    let target = work.path().join("jars");
    let mut command = Command::new(mvn);
    command
        .args(["-B", "-q", "-Dstyle.color=never", COPY, "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", target.display()))
        .current_dir(work.path());
    process::run_logged("Maven", &mut command, &work.path().join("maven.log")).with_context(|| {
        format!("cannot download {NAME}. Check the network and Maven's settings{instead}")
    })?;
    // In one step, so that nobody sees half of it.
    fs::rename(&target, &jars).with_context(|| format!("cannot create {}", jars.display()))?;
    Ok(jars)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_named_after_the_version_in_the_pom() {
        let version = NAME.trim_start_matches("kafka-");
        assert!(POM.contains(&format!("<kafka.version>{version}</kafka.version>")));
    }
}
