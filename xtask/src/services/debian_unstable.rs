//! Packages of Debian's unstable distribution, unpacked and never installed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;

const SUITE: &str = "unstable";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Downloads a package with all that it depends on and unpacks them into the directory `name` of the cache, without what `trim`
/// removes.
pub(super) fn unpack(
    package: &str,
    trim: impl Fn(&Path) -> Result<()>,
    cache: &Path,
    name: &str,
) -> Result<()> {
    let mirror = mirror()?;
    let work = tempfile::Builder::new().prefix("download-").tempdir_in(cache)?;
    let apt = Apt::new(work.path(), &mirror)?;
    apt.run(&["update"])?;
    apt.run(&["install", "--download-only", package])?;

    let root = work.path().join("root");
    fs::create_dir(&root)?;
    let mut packages = 0;
    for file in fs::read_dir(apt.archives())? {
        let file = file?.path();
        if file.extension() == Some(OsStr::new("deb")) {
            let mut unpack = Command::new("dpkg");
            unpack.arg("-x").arg(&file).arg(&root);
            process::run_logged("dpkg", &mut unpack, &work.path().join("dpkg.log"))?;
            packages += 1;
        }
    }
    if packages == 0 {
        bail!("apt-get has downloaded nothing");
    }
    trim(&root)?;
    // In one step, so that nobody sees half of it.
    let dir = cache.join(name);
    fs::rename(&root, &dir).with_context(|| format!("cannot create {}", dir.display()))
}

/// The mirror that this machine has its own distribution from.
fn mirror() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = codename(&release).context("it is in Debian's packages only, and this is no Debian")?;
    let output = Command::new("apt-get")
        .args(["--print-uris", "update"])
        .output()
        .context("it is in Debian's packages only, and there is no apt-get")?;
    let listed = String::from_utf8_lossy(&output.stdout);
    mirror_of(&listed, codename)
        .with_context(|| format!("apt's configuration names no mirror for `{codename}`"))
}

/// `bookworm` of a Debian.
fn codename(os_release: &str) -> Option<&str> {
    let value = |name: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"'))
    };
    (value("ID") == Some("debian")).then(|| value("VERSION_CODENAME"))?
}

/// Of `'http://mirror/debian/dists/bookworm/InRelease' …` the part before `/dists`.
fn mirror_of(listed: &str, codename: &str) -> Option<String> {
    let end = format!("/dists/{codename}/InRelease");
    let uris =
        listed.lines().filter_map(|line| line.strip_prefix('\'')?.split_once('\'').map(|(uri, _)| uri));
    uris.filter_map(|uri| uri.strip_suffix(end.as_str())).next().map(str::to_owned)
}

/// An apt-get with lists and a state of its own: the machine's are not touched. With no package installed as far as it
/// knows, it takes the C library as well.
struct Apt<'a> {
    work: &'a Path,
    options: Vec<OsString>,
}

impl<'a> Apt<'a> {
    fn new(work: &'a Path, mirror: &str) -> Result<Self> {
        let signed =
            if Path::new(KEYRING).is_file() { format!("[signed-by={KEYRING}] ") } else { String::new() };
        let sources = work.join("sources.list");
        fs::write(&sources, format!("deb {signed}{mirror} {SUITE} main\n"))?;
        let status = work.join("status");
        fs::write(&status, "")?;
        let new_dir = |name: &str| -> Result<PathBuf> {
            let dir = work.join(name);
            fs::create_dir_all(dir.join("partial"))?;
            Ok(dir)
        };
        let nothing = PathBuf::from("/dev/null");
        let files = [
            ("Dir::Etc::sourcelist", sources),
            ("Dir::Etc::sourceparts", nothing.clone()),
            ("Dir::Etc::preferences", nothing.clone()),
            ("Dir::Etc::preferencesparts", nothing),
            ("Dir::State::status", status),
            ("Dir::State::lists", new_dir("lists")?),
            ("Dir::Cache::archives", new_dir("archives")?),
            ("Dir::Cache::pkgcache", PathBuf::new()),
            ("Dir::Cache::srcpkgcache", PathBuf::new()),
        ];
        let settings = [
            "APT::Install-Recommends=false",
            // Without it, an update that reached nobody has succeeded.
            "APT::Update::Error-Mode=any",
            "Acquire::http::Timeout=30",
            "Acquire::https::Timeout=30",
            "Acquire::Retries=1",
        ];
        let files = files.into_iter().map(|(name, file)| {
            let mut option = OsString::from(format!("{name}="));
            option.push(file);
            option
        });
        let options = settings.into_iter().map(OsString::from).chain(files);
        let options = options.flat_map(|option| [OsString::from("-o"), option]).collect();
        Ok(Self { work, options })
    }

    fn archives(&self) -> PathBuf {
        self.work.join("archives")
    }

    fn run(&self, args: &[&str]) -> Result<()> {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-y", "-q"]).args(&self.options).args(args);
        let name = format!("apt-get {} from Debian's {SUITE} distribution", args.join(" "));
        process::run_logged(&name, &mut command, &self.work.join("apt.log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_of_our_own_distribution() {
        let listed = "'http://other/apt/dists/tool-bookworm/InRelease' other 0 \n\
                      'http://mirror/debian-security/dists/bookworm-security/InRelease' x 0 \n\
                      'http://mirror/debian/dists/bookworm/InRelease' x 0 \n\
                      'http://second/debian/dists/bookworm/InRelease' x 0 \n";
        assert_eq!(mirror_of(listed, "bookworm").as_deref(), Some("http://mirror/debian"));
        assert_eq!(mirror_of(listed, "trixie"), None);
    }

    #[test]
    fn only_a_debian_has_a_name_that_counts() {
        assert_eq!(codename("NAME=\"Debian\"\nVERSION_CODENAME=bookworm\nID=debian\n"), Some("bookworm"));
        assert_eq!(codename("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"), None);
        assert_eq!(codename(""), None);
    }
}
