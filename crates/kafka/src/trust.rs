//! Where this machine keeps the certificates of the authorities that it trusts.
//!
//! The OpenSSL that is linked in looks in the directory it was built for, which is on no machine. So one of the usual places is
//! named to it, unless the user has named another.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Files with all certificates in them.
const FILES: [&str; 8] = [
    // Debian, Ubuntu, Alpine, Arch, and images without a distribution.
    "/etc/ssl/certs/ca-certificates.crt",
    // RHEL, Fedora and their relatives.
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    // SUSE.
    "/etc/ssl/ca-bundle.pem",
    // macOS, Alpine, the BSDs.
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
    // Homebrew.
    "/opt/homebrew/etc/openssl@3/cert.pem",
    "/usr/local/etc/openssl@3/cert.pem",
];

/// Directories with one certificate a file, under the names that OpenSSL looks for. The last resort: they may hold other names.
const DIRECTORIES: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// The file or directory, as `ssl.ca.location` wants it. The variables that OpenSSL knows come first, then the usual places.
pub(crate) fn location() -> Option<String> {
    locate(Path::new("/"), |name| std::env::var_os(name))
}

fn locate(root: &Path, env: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let named = |name| env(name).map(PathBuf::from).filter(|path| path.exists());
    let below = |path: &&str| root.join(path.trim_start_matches('/'));
    let is_filled = |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0);
    let found = named("SSL_CERT_FILE")
        .or_else(|| named("SSL_CERT_DIR"))
        .or_else(|| FILES.iter().map(below).find(is_filled))
        .or_else(|| DIRECTORIES.iter().map(below).find(|path| path.is_dir()));
    found?.into_os_string().into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_env(_: &str) -> Option<OsString> {
        None
    }

    /// A machine with this file, and what finds it there.
    fn machine(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for file in files {
            let file = root.path().join(file.trim_start_matches('/'));
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("a folder");
            std::fs::write(file, "a certificate").expect("a file");
        }
        root
    }

    #[test]
    fn each_system_has_its_place() {
        for (system, files, expected) in [
            ("Debian", &["/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/one.pem"][..], Some(0)),
            ("Alpine", &["/etc/ssl/cert.pem"], Some(0)),
            ("RHEL", &["/etc/pki/tls/certs/ca-bundle.crt"], Some(0)),
            ("Fedora", &["/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"], Some(0)),
            ("SUSE", &["/etc/ssl/ca-bundle.pem", "/etc/ssl/certs/one.pem"], Some(0)),
            ("macOS", &["/etc/ssl/cert.pem"], Some(0)),
            ("nothing", &["/etc/hosts"], None),
        ] {
            let root = machine(files);
            let expected = expected.map(|nth: usize| format!("{}{}", root.path().display(), files[nth]));
            assert_eq!(locate(root.path(), no_env), expected, "{system}");
        }
    }

    #[test]
    fn a_directory_is_better_than_nothing_and_an_empty_file_is_nothing() {
        let root = machine(&["/etc/ssl/certs/0a1b2c.0"]);
        std::fs::write(root.path().join("etc/ssl/cert.pem"), "").expect("a file");
        let expected = format!("{}/etc/ssl/certs", root.path().display());
        assert_eq!(locate(root.path(), no_env), Some(expected));
    }

    #[test]
    fn the_environment_comes_first() {
        let root = machine(&["/etc/ssl/cert.pem", "/mine.pem"]);
        let mine = root.path().join("mine.pem");
        let env = |name: &str| (name == "SSL_CERT_FILE").then(|| mine.clone().into_os_string());
        assert_eq!(locate(root.path(), env).as_deref(), mine.to_str());
        let gone = |name: &str| (name == "SSL_CERT_FILE").then(|| "/is/not/there".into());
        assert!(locate(root.path(), gone).is_some_and(|found| found.ends_with("/etc/ssl/cert.pem")));
    }
}
