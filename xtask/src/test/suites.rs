//! The test programs of the workspace, as cargo has built them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::cargo_test;
use crate::{cargo, process};

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    /// What cargo calls it after `-p`, such as `oncebox-cli --test e2e`.
    pub(crate) name: String,
    program: PathBuf,
    package_dir: PathBuf,
}

impl Suite {
    pub(crate) fn new(
        name: impl Into<String>,
        program: impl Into<PathBuf>,
        package_dir: impl Into<PathBuf>,
    ) -> Self {
        Self { name: name.into(), program: program.into(), package_dir: package_dir.into() }
    }

    /// The program where cargo would run it: in the folder of its package, which is also what trybuild asks for.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        cargo::forget_ourselves(&mut command);
        command.current_dir(&self.package_dir).env("CARGO_MANIFEST_DIR", &self.package_dir);
        command
    }
}

/// Builds the tests that these arguments of `cargo test` choose. What the compiler says is shown as always.
pub(crate) fn build(args: &[String]) -> Result<Vec<Suite>> {
    let messages = tempfile::NamedTempFile::new().context("no temporary file")?;
    let mut build = cargo_test();
    build.args(["--no-run", "--message-format=json-render-diagnostics"]).args(args);
    let status = process::run(build.stdout(messages.reopen()?))?;
    if !status.success() {
        bail!("the tests do not build ({status})");
    }
    let mut suites = of(&fs::read_to_string(messages.path())?)?;
    // Cargo names them as they are done, in another order each time.
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    if suites.is_empty() {
        bail!("cargo has built no test");
    }
    Ok(suites)
}

/// One message per line.
fn of(messages: &str) -> Result<Vec<Suite>> {
    let parse = |line| serde_json::from_str::<Message>(line).context("cargo's messages are not as expected");
    let mut suites = Vec::new();
    for message in messages.lines().map(parse) {
        if let Message::CompilerArtifact(Artifact {
            package_id,
            manifest_path,
            target,
            profile: Profile { test: true },
            executable: Some(program),
        }) = message?
        {
            let package = package_name(&package_id);
            let dir = manifest_path.parent().unwrap_or(Path::new("/"));
            suites.push(Suite::new(format!("{package} {}", target.option()), program, dir));
        }
    }
    Ok(suites)
}

/// See "Package ID specifications" in Cargo's reference: where the name is that of the folder, it is not repeated.
fn package_name(id: &str) -> &str {
    let (place, name) = id.rsplit_once('#').unwrap_or((id, id));
    let folder = place.rsplit('/').next().unwrap_or(place);
    name.split_once('@').map_or(folder, |(name, _)| name)
}

#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact(Artifact),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Artifact {
    package_id: String,
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Target {
    /// How to choose it alone.
    fn option(&self) -> String {
        match self.kind.first().map_or("", String::as_str) {
            kind @ ("test" | "bin" | "example" | "bench") => format!("--{kind} {}", self.name),
            _ => "--lib".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_what_they_need() {
        let message = |id: &str, kind: &str, name: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/{id}","manifest_path":"/w/cli/Cargo.toml",
                "target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"{name}","test":true}},
                "profile":{{"opt_level":"0","test":{test}}},"filenames":[],"executable":{executable},"fresh":true}}"#
            )
            .replace('\n', "")
        };
        let messages = [
            message("cli#oncebox-cli@0.1.0", "lib", "oncebox_cli", false, "null"),
            message("cli#oncebox-cli@0.1.0", "lib", "oncebox_cli", true, r#""/w/target/lib""#),
            message("cli#oncebox-cli@0.1.0", "bin", "oncebox", false, r#""/w/target/oncebox""#),
            message("cli#oncebox-cli@0.1.0", "bin", "oncebox", true, r#""/w/target/bin""#),
            message("cli#oncebox-cli@0.1.0", "test", "e2e", true, r#""/w/target/e2e""#),
            message("xtask#0.1.0", "bin", "xtask", true, r#""/w/target/xtask""#),
            r#"{"reason":"build-script-executed","package_id":"x","linked_libs":[]}"#.to_owned(),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let suite = |name, program| Suite::new(name, Path::new("/w/target").join(program), "/w/cli");
        assert_eq!(
            of(&messages.join("\n")).expect("messages"),
            [
                suite("oncebox-cli --lib", "lib"),
                suite("oncebox-cli --bin oncebox", "bin"),
                suite("oncebox-cli --test e2e", "e2e"),
                suite("xtask --bin xtask", "xtask"),
            ]
        );
    }

    #[test]
    fn a_suite_knows_its_package_and_not_ours() {
        let command = Suite::new("oncebox-cli --test e2e", "/w/e2e", "/w/cli").command();
        let set: Vec<_> = command.get_envs().filter(|(_, value)| value.is_some()).collect();
        assert_eq!(set, [("CARGO_MANIFEST_DIR".as_ref(), Some("/w/cli".as_ref()))]);
        assert_eq!(command.get_current_dir(), Some(Path::new("/w/cli")));
    }
}
