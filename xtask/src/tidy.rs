//! The rules about the repository itself, which no compiler knows: which room may use which, what core must
//! not do, and what must not stand in any file.
//!
//! [`check`] is a function of a [`Repository`], so that the rules themselves are tested on made-up ones. The
//! text rules look at code the way `grep` does. They are there to stop a slip, not somebody who wants to
//! get around them.

mod one_place;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{conformance, tools};

/// Which rooms a room may use. The arrows point towards core, and siblings do not see each other.
const ROOMS: [(&str, &[&str]); 17] = [
    ("azureal-core", &[]),
    ("azureal-files", &[]),
    ("azureal-process", &[]),
    ("azureal-snapshots", &["azureal-files", "azureal-process"]),
    ("azureal-store", &["azureal-core", "azureal-files"]),
    ("azureal-search", &["azureal-core", "azureal-files"]),
    ("azureal-agents", &["azureal-core", "azureal-process"]),
    ("azureal-engine", &["azureal-core", "azureal-files", "azureal-process", "azureal-snapshots"]),
    ("azureal-exchange", &["azureal-core", "azureal-files", "azureal-store", "azureal-agents"]),
    ("azureal-transcript", &["azureal-core"]),
    (
        "azureal",
        &[
            "azureal-core",
            "azureal-files",
            "azureal-process",
            "azureal-snapshots",
            "azureal-search",
            "azureal-store",
            "azureal-agents",
            "azureal-engine",
            "azureal-exchange",
            "azureal-transcript",
        ],
    ),
    ("azureal-tui", &["azureal"]),
    ("azureal-serve", &["azureal"]),
    (
        PROGRAM,
        &[
            "azureal",
            "azureal-core",
            "azureal-files",
            "azureal-process",
            "azureal-snapshots",
            "azureal-search",
            "azureal-store",
            "azureal-agents",
            "azureal-engine",
            "azureal-exchange",
            "azureal-transcript",
            "azureal-tui",
            "azureal-serve",
        ],
    ),
    (TESTKIT, &["azureal-core"]),
    ("azureal-bench", &["azureal-core", "azureal-engine", "azureal-search", "azureal-store"]),
    ("xtask", &[]),
];

/// The library for front ends.
const LIBRARY: &str = "azureal";
/// The program.
const PROGRAM: &str = "azureal-cli";
/// Only ever a dev-dependency.
const TESTKIT: &str = "azureal-testkit";

/// Crates that core cannot use, because it does no input or output.
const IO_CRATES: [&str; 8] = ["libc", "mio", "reqwest", "rusqlite", "rustix", "tempfile", "tokio", "zstd"];
/// Modules of the standard library that core cannot use, for the same reason.
const IO_MODULES: [&str; 5] = ["env", "fs", "io", "net", "process"];
/// Types that read a clock.
const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];
/// Crates for arguments and terminals, which are the business of front ends. `anstyle` is not among them: it comes with the reader of YAML, and
/// only has names for styles.
const FRONT_END_CRATES: [&str; 14] = [
    "anstream",
    "clap",
    "clap_builder",
    "clap_complete",
    "console",
    "crossterm",
    "dialoguer",
    "indicatif",
    "is-terminal",
    "ratatui",
    "rustyline",
    "termcolor",
    "terminal_size",
    "termion",
];

/// What may stand in no file: the places of somebody's machine. Put together, so as not to find itself.
const MACHINE_PATHS: [&str; 2] = [concat!("/", "work/"), concat!("../", "shared")];
/// What may stand only in the files that hold, or make up, recorded conversations.
const HOME_PATH: &str = concat!("/", "home/");

/// What the rules look at.
#[derive(Default)]
pub(crate) struct Repository {
    files: Vec<SourceFile>,
    packages: Vec<Package>,
    /// The crates that the library links, directly or not, with its default features.
    linked: Vec<String>,
}

struct SourceFile {
    /// Relative to the root, with `/`.
    path: String,
    text: String,
}

struct Package {
    name: String,
    /// Relative to the root, with `/`.
    folder: String,
    is_library: bool,
    dependencies: Vec<Dependency>,
}

/// As `cargo metadata` has it.
#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// Nothing for a normal dependency.
    kind: Option<String>,
}

impl Repository {
    /// Reads the repository at `root`: every file that git would not ignore, and what cargo says of the packages.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let ignore = fs::read_to_string(root.join(".gitignore")).context("cannot read .gitignore")?;
        let mut files = Vec::new();
        read_folder(root, "", &Ignored::parse(&ignore)?, &mut files)?;
        Ok(Self { files, packages: read_packages(root)?, linked: read_linked(root)? })
    }

    /// Returns the files of a package's own code, with its name.
    fn code_of(&self, package: &Package) -> impl Iterator<Item = &SourceFile> {
        let folder = format!("{}/src/", package.folder);
        self.files.iter().filter(move |file| file.path.starts_with(&folder) && file.path.ends_with(".rs"))
    }
}

/// The patterns of a `.gitignore`. Read here rather than by git, as a source archive has no repository.
struct Ignored<'a> {
    /// From the root.
    paths: Vec<&'a str>,
    /// Anywhere.
    names: Vec<&'a str>,
    /// Anywhere.
    endings: Vec<&'a str>,
}

impl<'a> Ignored<'a> {
    fn parse(text: &'a str) -> Result<Self> {
        let mut ignored = Self { paths: Vec::new(), names: Vec::new(), endings: Vec::new() };
        for line in text.lines().map(str::trim) {
            let pattern = line.trim_end_matches('/');
            if let Some(path) = pattern.strip_prefix('/') {
                ignored.paths.push(path);
            } else if let Some(ending) = pattern.strip_prefix('*') {
                ignored.endings.push(ending);
            } else if !pattern.is_empty() && !pattern.starts_with('#') {
                ignored.names.push(pattern);
            }
            if pattern.contains(['!', '?', '[']) || pattern.matches('*').count() > 1 {
                bail!("tidy does not understand `{line}` in .gitignore: teach it, or write it more plainly");
            }
        }
        Ok(ignored)
    }

    fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.paths.contains(&path)
            || self.names.contains(&name)
            || self.endings.iter().any(|ending| name.ends_with(ending))
    }
}

fn read_folder(root: &Path, folder: &str, ignored: &Ignored<'_>, files: &mut Vec<SourceFile>) -> Result<()> {
    let place = root.join(folder);
    for entry in fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if path == ".git" || ignored.matches(&path) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            read_folder(root, &path, ignored, files)?;
        } else {
            let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
            files.push(SourceFile { path, text: String::from_utf8_lossy(&bytes).into_owned() });
        }
    }
    Ok(())
}

fn read_packages(root: &Path) -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<MetadataPackage>,
    }
    #[derive(Deserialize)]
    struct MetadataPackage {
        name: String,
        manifest_path: String,
        dependencies: Vec<Dependency>,
        targets: Vec<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        kind: Vec<String>,
    }

    let output = ask_cargo(root, &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Metadata = serde_json::from_slice(&output).context("cargo metadata")?;
    let root = fs::canonicalize(root)?;
    let mut packages = Vec::new();
    for package in metadata.packages {
        let folder = Path::new(&package.manifest_path)
            .parent()
            .and_then(|folder| folder.strip_prefix(&root).ok())
            .with_context(|| format!("{} lies outside of the repository", package.name))?;
        packages.push(Package {
            folder: folder.to_string_lossy().replace('\\', "/"),
            is_library: package.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "lib")),
            name: package.name,
            dependencies: package.dependencies,
        });
    }
    Ok(packages)
}

fn read_linked(root: &Path) -> Result<Vec<String>> {
    let tree = ["tree", "--package", LIBRARY, "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let output = ask_cargo(root, &tree)?;
    let text = String::from_utf8_lossy(&output);
    Ok(text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// Returns what cargo prints.
fn ask_cargo(root: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = tools::cargo().args(arguments).current_dir(root).output().context("cannot start cargo")?;
    if !output.status.success() {
        let subcommand = arguments.first().unwrap_or(&"");
        bail!("cargo {subcommand}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(output.stdout)
}

/// Returns every breach of the rules, as a line that says what is wrong where.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let mut problems = Vec::new();
    for package in &repository.packages {
        check_dependencies(package, &mut problems);
        if package.is_library {
            for file in repository.code_of(package) {
                check_library_code(package, file, &mut problems);
            }
        }
    }
    for linked in
        FRONT_END_CRATES.iter().filter(|name| repository.linked.iter().any(|linked| linked == *name))
    {
        problems
            .push(format!("{LIBRARY} must not link {linked}: arguments and terminals belong to front ends"));
    }
    for file in &repository.files {
        check_text(file, &mut problems);
    }
    check_decisions(repository, &mut problems);
    check_conformance(repository, &mut problems);
    one_place::check(repository, &mut problems);
    problems
}

fn check_dependencies(package: &Package, problems: &mut Vec<String>) {
    let name = &package.name;
    let Some((_, may_use)) = ROOMS.iter().find(|(room, _)| room == name) else {
        problems.push(format!("{name} is not in the table of rooms in xtask/src/tidy.rs"));
        return;
    };
    let is_ours = |name: &str| name.starts_with("azureal") || ROOMS.iter().any(|(room, _)| *room == name);
    let linked = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        .map(|dependency| dependency.name.as_str());
    for used in linked {
        if used == TESTKIT {
            problems.push(format!("{name} uses {TESTKIT}, which is only for dev-dependencies"));
        } else if is_ours(used) && !may_use.contains(&used) {
            problems.push(format!("{name} must not use {used}"));
        } else if name == "azureal-core" && IO_CRATES.contains(&used) {
            problems.push(format!("{name} must not use {used}: it does no input or output"));
        } else if name != PROGRAM && used.starts_with("clap") {
            problems.push(format!("{name} must not use {used}: only the program reads arguments"));
        }
    }
}

fn check_library_code(package: &Package, file: &SourceFile, problems: &mut Vec<String>) {
    let SourceFile { path, text } = file;
    // Long pages are files of their own that rustdoc takes in.
    if !text.starts_with("//!") && !text.starts_with("#![doc = include_str!(") {
        problems.push(format!("{path} does not begin by saying what it is for (`//!`)"));
    }
    if package.name != "azureal-core" || is_test_file(path) {
        return;
    }
    for (number, line) in code_lines(text) {
        let mut forbid = |what: &str, why: &str| {
            problems.push(format!("{path}:{number} uses {what}: {why}"));
        };
        for module in std_modules(line).into_iter().filter(|module| IO_MODULES.contains(module)) {
            forbid(&format!("std::{module}"), "core does no input or output");
        }
        for (clock, _) in words(line).filter(|(word, _)| CLOCKS.contains(word)) {
            forbid(clock, "core reads no clock");
        }
    }
}

/// Says whether a file holds nothing but tests.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Returns the numbered lines of a file without comments, up to the module of tests at its end.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    code.lines().enumerate().map(|(index, line)| {
        // A colon before it makes it the `//` of a URL.
        let comment = line
            .match_indices("//")
            .find(|(at, _)| !line.get(..*at).is_some_and(|before| before.ends_with(':')));
        let code = comment.and_then(|(at, _)| line.get(..at)).unwrap_or(line);
        (index + 1, code)
    })
}

/// Returns the identifiers of a line, each with what stands after it.
fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let start = rest.find(is_word)?;
        let from_start = rest.get(start..)?;
        let end = from_start.find(|c| !is_word(c)).unwrap_or(from_start.len());
        let (word, after) = from_start.split_at_checked(end)?;
        rest = after;
        Some((word, after))
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the modules of the standard library that a line names, in groups too: `std::{fs, io::Read}`.
fn std_modules(line: &str) -> Vec<&str> {
    let mut modules = Vec::new();
    for (_, after) in words(line).filter(|(word, _)| *word == "std") {
        let Some(path) = after.strip_prefix("::") else {
            continue;
        };
        // The error is a value that other crates return, and no input or output.
        if path.starts_with("io::Error") {
            continue;
        }
        let Some(group) = path.strip_prefix('{') else {
            modules.extend(words(path).next().map(|(module, _)| module));
            continue;
        };
        let mut depth = 0;
        let mut starts = true;
        for (word, after) in words(group) {
            if starts && depth == 0 {
                modules.push(word);
            }
            let between = after.split(is_word).next().unwrap_or("");
            depth += between.matches('{').count();
            depth = depth.saturating_sub(between.matches('}').count());
            starts = between.contains(',');
        }
    }
    modules
}

fn check_text(file: &SourceFile, problems: &mut Vec<String>) {
    let SourceFile { path, text } = file;
    let made_up = path.contains("fixtures/") || path == "bench/gen.py";
    for (index, line) in text.lines().enumerate() {
        let machine = MACHINE_PATHS.into_iter().find(|machine| line.contains(machine));
        let home = (!made_up && line.contains(HOME_PATH)).then_some(HOME_PATH);
        if let Some(found) = machine.or(home) {
            problems.push(format!("{path}:{} names a place on a machine: {found}", index + 1));
        }
    }
}

const DECISIONS: &str = "docs/decisions/";

/// Checks that decisions are numbered 0001, 0002 … and that those which are cited exist.
fn check_decisions(repository: &Repository, problems: &mut Vec<String>) {
    let mut numbers = BTreeSet::new();
    for file in &repository.files {
        let Some(name) = file.path.strip_prefix(DECISIONS) else {
            continue;
        };
        match leading_number(name) {
            Some(number) if !numbers.insert(number) => {
                problems.push(format!("{} has a number that another decision has", file.path));
            }
            None if name != "README.md" => {
                problems.push(format!("{} has no number of four digits", file.path));
            }
            Some(_) | None => {}
        }
    }
    for (expected, number) in (1..).zip(&numbers) {
        if *number != expected {
            problems.push(format!("{DECISIONS}{expected:04} is missing: the next is {number:04}"));
            break;
        }
    }
    for file in &repository.files {
        for (index, line) in file.text.lines().enumerate() {
            let cited = line.split(DECISIONS).skip(1).filter_map(leading_number);
            for number in cited.filter(|number| !numbers.contains(number)) {
                problems.push(format!(
                    "{}:{} cites decision {number:04}, which does not exist",
                    file.path,
                    index + 1
                ));
            }
        }
    }
}

/// Checks that the page on what stores promise has every promise.
fn check_conformance(repository: &Repository, problems: &mut Vec<String>) {
    let text =
        |path: &str| repository.files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let contracts: Vec<&str> = conformance::CONTRACTS.into_iter().filter_map(text).collect();
    if !contracts.is_empty() {
        problems.extend(conformance::check(&contracts, text(conformance::PAGE).unwrap_or_default()));
    }
}

/// Returns the number that a text of the form `0012…` begins with.
fn leading_number(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_keeps_its_rules() {
        let repository = Repository::load(crate::root().unwrap()).unwrap();
        // That there is something to look at: a loader that finds nothing would find nothing wrong.
        assert!(repository.packages.iter().any(|package| package.name == PROGRAM));
        let core = repository.packages.iter().find(|package| package.name == "azureal-core");
        assert!(repository.code_of(core.unwrap()).count() > 1);
        assert!(repository.linked.iter().any(|linked| linked == "azureal-store"));
        assert_eq!(check(&repository), [""; 0]);
    }

    fn package(name: &str, folder: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        Package {
            name: name.into(),
            folder: folder.into(),
            is_library: name != PROGRAM,
            dependencies: dependencies
                .iter()
                .map(|(name, kind)| Dependency { name: (*name).into(), kind: kind.map(Into::into) })
                .collect(),
        }
    }

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[track_caller]
    fn check_package(name: &str, dependencies: &[(&str, Option<&str>)], expected: &[&str]) {
        let repository =
            Repository { packages: vec![package(name, "crates/x", dependencies)], ..Repository::default() };
        assert_eq!(check(&repository), expected);
    }

    #[test]
    fn arrows_point_towards_core() {
        check_package("azureal-store", &[("azureal-core", None), ("zstd", None)], &[]);
        check_package(PROGRAM, &[("azureal-store", None), ("azureal-tui", None)], &[]);
        check_package(
            "azureal-store",
            &[("azureal-engine", None), ("azureal", Some("build"))],
            &["azureal-store must not use azureal-engine", "azureal-store must not use azureal"],
        );
        check_package(
            "azureal-core",
            &[("azureal-store", None)],
            &["azureal-core must not use azureal-store"],
        );
        check_package(
            "azureal-exchange",
            &[("azureal-store", None), ("azureal-agents", None), ("azureal-engine", None), ("clap", None)],
            &[
                "azureal-exchange must not use azureal-engine",
                "azureal-exchange must not use clap: only the program reads arguments",
            ],
        );
        check_package(
            "azureal-cloud",
            &[],
            &["azureal-cloud is not in the table of rooms in xtask/src/tidy.rs"],
        );
        // A room that nobody has thought of yet is not to be used either.
        check_package("xtask", &[("azureal-cloud", None)], &["xtask must not use azureal-cloud"]);
    }

    #[test]
    fn tests_may_use_what_the_code_may_not() {
        check_package(
            "azureal-core",
            &[("azureal-testkit", Some("dev")), ("azureal-store", Some("dev")), ("tempfile", Some("dev"))],
            &[],
        );
        check_package(
            "azureal-store",
            &[("azureal-testkit", None)],
            &["azureal-store uses azureal-testkit, which is only for dev-dependencies"],
        );
    }

    #[test]
    fn core_has_no_crates_for_input_and_output() {
        check_package(
            "azureal-core",
            &[("serde", None), ("tokio", None)],
            &["azureal-core must not use tokio: it does no input or output"],
        );
        check_package("azureal-store", &[("tokio", None)], &[]);
    }

    #[track_caller]
    fn check_code(name: &str, text: &str, expected: &[&str]) {
        let repository = Repository {
            files: vec![file("crates/x/src/a.rs", text)],
            packages: vec![package(name, "crates/x", &[])],
            ..Repository::default()
        };
        assert_eq!(check(&repository), expected);
    }

    #[test]
    fn core_touches_nothing_outside() {
        for (code, found) in [
            ("use std::fs;", "std::fs"),
            ("fn a() { ::std::process::exit(1) }", "std::process"),
            ("use std::{fmt, net::TcpStream};", "std::net"),
            ("use std::{collections::{BTreeMap, env}, env};", "std::env"),
            ("use std::io::Read;", "std::io"),
        ] {
            let expected = format!("crates/x/src/a.rs:2 uses {found}: core does no input or output");
            check_code("azureal-core", &format!("//! A.\n{code}\n"), &[&expected]);
        }
        check_code(
            "azureal-core",
            "//! A.\nuse std::time::SystemTime;\nlet now = Instant::now();\n",
            &[
                "crates/x/src/a.rs:2 uses SystemTime: core reads no clock",
                "crates/x/src/a.rs:3 uses Instant: core reads no clock",
            ],
        );
        check_code(
            "azureal-core",
            "//! A `std::fs`.\nuse std::{fmt, collections::{BTreeMap}};\nlet fs = instant; // std::env\nfn a(_: std::io::Error) {}\n",
            &[],
        );
    }

    #[test]
    fn only_core_is_read_for_what_it_touches() {
        let text = "//! A.\nlet url = \"https://a\"; // std::net\nuse std::fs;\n\n#[cfg(test)]\nmod tests {\n    use std::env;\n}\n";
        check_code("azureal-store", text, &[]);
        check_code("azureal-core", text, &["crates/x/src/a.rs:3 uses std::fs: core does no input or output"]);
    }

    #[test]
    fn the_library_links_nothing_of_front_ends() {
        let repository = |linked: &[&str]| Repository {
            linked: linked.iter().map(|name| (*name).to_owned()).collect(),
            ..Repository::default()
        };
        assert_eq!(check(&repository(&["azureal", "anstyle", "tokio"])), [] as [&str; 0]);
        let linked = check(&repository(&["azureal", "clap", "terminal_size"]));
        assert_eq!(
            linked,
            ["clap", "terminal_size"].map(|name| format!(
                "azureal must not link {name}: arguments and terminals belong to front ends"
            ))
        );
    }

    #[test]
    fn files_of_libraries_say_what_they_are_for() {
        check_code(
            "azureal-store",
            "use std::fmt;\n",
            &["crates/x/src/a.rs does not begin by saying what it is for (`//!`)"],
        );
        check_code("azureal-store", "#![doc = include_str!(\"../README.md\")]\nuse std::fmt;\n", &[]);
        check_code(PROGRAM, "use std::fmt;\n", &[]);
    }

    #[track_caller]
    pub(super) fn check_files(files: &[(&str, &str)], expected: &[&str]) {
        let repository = Repository {
            files: files.iter().map(|(path, text)| file(path, text)).collect(),
            ..Repository::default()
        };
        assert_eq!(check(&repository), expected);
    }

    #[test]
    fn no_file_names_a_place_on_a_machine() {
        let [work, shared] = MACHINE_PATHS;
        check_files(
            &[
                ("a.md", &format!("one\nsee {work}x\n")),
                ("b.md", shared),
                ("c.rs", HOME_PATH),
                ("crates/x/tests/fixtures/d.jsonl", HOME_PATH),
                ("crates/x/tests/fixtures/e.jsonl", work),
                ("f.md", "a workload/file, at home/"),
            ],
            &[
                &format!("a.md:2 names a place on a machine: {work}"),
                &format!("b.md:1 names a place on a machine: {shared}"),
                &format!("c.rs:1 names a place on a machine: {HOME_PATH}"),
                &format!("crates/x/tests/fixtures/e.jsonl:1 names a place on a machine: {work}"),
            ],
        );
    }

    /// Puts the folder in front here, because this file is looked at as well and must not cite what is not there.
    #[track_caller]
    fn check_decision_files(names: &[&str], citing: &str, expected: &[&str]) {
        let mut files: Vec<_> = names.iter().map(|name| file(&format!("{DECISIONS}{name}"), "")).collect();
        files.push(file("src/a.rs", &citing.replace("DECISIONS/", DECISIONS)));
        let repository = Repository { files, ..Repository::default() };
        let expected: Vec<_> =
            expected.iter().map(|problem| problem.replace("DECISIONS/", DECISIONS)).collect();
        assert_eq!(check(&repository), expected);
    }

    #[test]
    fn decisions_are_numbered_without_gaps() {
        check_decision_files(&["0002-b.md", "0001-a.md", "README.md"], "", &[]);
        check_decision_files(
            &["0001-a.md", "0001-b.md", "0004-d.md", "notes.md"],
            "",
            &[
                "DECISIONS/0001-b.md has a number that another decision has",
                "DECISIONS/notes.md has no number of four digits",
                "DECISIONS/0002 is missing: the next is 0004",
            ],
        );
    }

    #[test]
    fn a_decision_that_is_cited_exists() {
        check_decision_files(
            &["0001-a.md"],
            "// DECISIONS/0001-a.md, DECISIONS/0007, DECISIONS/",
            &["src/a.rs:1 cites decision 0007, which does not exist"],
        );
    }

    #[test]
    fn what_git_ignores_is_ignored() {
        let ignored = Ignored::parse("/target\n__pycache__/\n*.snap.new\n# a remark\n\n").unwrap();
        for path in ["target", "bench/__pycache__", "a/b.snap.new"] {
            assert!(ignored.matches(path), "{path}");
        }
        for path in ["crates/target", "a.snap", "# a remark", ""] {
            assert!(!ignored.matches(path), "{path}");
        }
        for pattern in ["!keep", "a?", "**/b"] {
            assert!(Ignored::parse(pattern).is_err(), "{pattern}");
        }
    }
}
