use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::NamedTempFile;

use super::SessionToRead;
use crate::export::Format;
use crate::failure::Failure;
use crate::output::Output;
use azureal::error::shown;
use azureal::sessions::{called, resolve_to_read};
use azureal::{Workspace, folder_of};

/// Write a session in the format of another program
///
/// To standard output, or to a file that only you can read. `json` has everything and can be imported
/// again; the other formats have what they can express.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal export S3 --format markdown
  azureal export S3 -o S3.json
  azureal export S3 --format cllm -o ~/.cllm/conversations/fix-login.json")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionToRead,
    /// The format to write
    #[arg(short, long, value_enum, default_value = "json")]
    format: Format,
    /// Write to this file, which must not exist yet
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,
}

pub(crate) async fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let record = resolve_to_read(place, args.session.session.as_deref()).await?;
    let Some(path) = args.output.as_deref().filter(|path| *path != Path::new("-")) else {
        if out.is_json() && args.format == Format::Markdown {
            return Err(Failure::usage("`--json` and `--format markdown` are two formats for one output")
                .with_hint("write the document to a file with `-o`, or leave out `--json`"));
        }
        return args.format.write(&*place.store, &record, out).await;
    };
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    if place.owns(path) {
        let message = format!("{} belongs to the store that would be exported from", shown(path));
        return Err(Failure::refused("same_store", message).with_hint("name another file with `-o`"));
    }
    check(path, existing)?;
    let mut file = BufWriter::new(draft_beside(path)?);
    args.format.write(&*place.store, &record, &mut file).await.map_err(|failure| failure.in_file(path))?;
    finish(file, path, existing)?;
    if out.is_json() {
        out.json(&json!({"id": record.id.to_string(), "file": path.to_string_lossy()}))
    } else {
        out.line(&format!("{} is in {}", called(&record), shown(path)))
    }
}

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    Keep,
    Replace,
}

/// Says whether a file may be made here. A link is never followed: it may lead anywhere.
fn check(path: &Path, existing: Existing) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::file(path, &error)),
        Ok(metadata) if !metadata.is_file() => {
            Err(Failure::refused("exists", format!("{} exists and is not a plain file", shown(path)))
                .with_hint("name another file with `-o`"))
        }
        Ok(_) if existing == Existing::Keep => Err(already_there(path)),
        Ok(_) => Ok(()),
    }
}

fn already_there(path: &Path) -> Failure {
    Failure::refused("exists", format!("{} exists already", shown(path)))
        .with_hint("`--force` replaces it; nothing was written")
}

/// Makes a file that only the user can read, beside where it will be.
fn draft_beside(path: &Path) -> Result<NamedTempFile, Failure> {
    NamedTempFile::with_prefix_in(".azureal-", folder_of(path)).map_err(|error| Failure::file(path, &error))
}

/// Gives the file its name, now that it is whole.
fn finish(mut file: BufWriter<NamedTempFile>, path: &Path, existing: Existing) -> Result<(), Failure> {
    let synced = file.flush().and_then(|()| file.get_ref().as_file().sync_all());
    synced.map_err(|error| Failure::file(path, &error))?;
    let draft = file.into_inner().map_err(|error| Failure::file(path, error.error()))?;
    let named = match existing {
        Existing::Keep => draft.persist_noclobber(path),
        Existing::Replace => draft.persist(path),
    };
    match named {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(already_there(path)),
        Err(error) => Err(Failure::file(path, &error.error)),
    }
}
