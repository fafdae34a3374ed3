//! Finds out which commit is being built, for `--version`, and compiles the few lines that must run before Rust does.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "this is how cargo and a build script talk"
)]

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=AZUREAL_COMMIT");
    // A packager without a repository says which commit it is.
    let commit = std::env::var("AZUREAL_COMMIT").ok().or_else(|| {
        // The log of HEAD grows with every commit and checkout, and with nothing else.
        if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
            println!("cargo::rerun-if-changed={log}");
        }
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    println!("cargo::rerun-if-changed=src/closed_stdout.c");
    // As an object, not a library: nothing in Rust refers to it, and a linker drops unused members of a library.
    for object in cc::Build::new().file("src/closed_stdout.c").compile_intermediates() {
        println!("cargo::rustc-link-arg-bins={}", object.display());
    }
    let version = env!("CARGO_PKG_VERSION");
    match commit {
        Some(commit) => println!("cargo::rustc-env=AZUREAL_VERSION={version} ({commit})"),
        None => println!("cargo::rustc-env=AZUREAL_VERSION={version}"),
    }
}
