//! The written session in the home of the program: placing it, and deleting it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use azureal_agents::native::{NativeConversation, NativeWriter, Placement};
use azureal_core::Uuid;
use azureal_engine::{OpenedSession, RUN_MARKER, without_withheld};
use azureal_exchange::TemporaryFolder;
use azureal_process::{ChildEnvironment, Exit, Marker, Spawn, StopTimeouts, Stream};

use super::InterfaceCommand;
use crate::error::{Error, shown};
use crate::workspace::Workspace;

/// The time limit of a program that imports or deletes a session.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);
/// How much of its output is kept, for an error.
const OUTPUT_BYTES: usize = 4096;

/// Writes a session into the home of a program, or has the program import it.
pub(super) fn place(
    placement: &Placement,
    command: &InterfaceCommand,
    writer: &dyn NativeWriter,
    conversation: &NativeConversation<'_>,
    workspace: &Workspace,
) -> Result<(), Error> {
    match placement {
        Placement::File(file) => {
            write_file(file, writer, conversation)?;
            add_companions(file, writer, conversation)
        }
        Placement::Import(arguments) => {
            let temporary = workspace.environment().temporary();
            import_into_program(command, arguments, writer, conversation, &temporary)
        }
    }
}

/// Deletes the written session from the home of its program.
pub(super) fn delete(
    opened: &OpenedSession,
    writer: &dyn NativeWriter,
    workspace: &Workspace,
) -> Result<(), String> {
    let mut failed = None;
    if !opened.delete.is_empty() {
        let environment = without_withheld(workspace.environment().for_children());
        let arguments = opened.delete.iter().map(Into::into).collect();
        failed = run_program(&opened.program, arguments, &opened.directory, environment).err();
    }
    let Some(file) = &opened.file else {
        let kept = |reason| format!("{} keeps the session as {}: {reason}", writer.agent(), opened.id);
        return failed.map_or(Ok(()), |reason| Err(kept(reason)));
    };
    let removed = writer.leftovers(file).iter().try_for_each(|path| remove(path)).and_then(|()| remove(file));
    removed.map_err(|error| format!("{} stays: {error}", shown(file)))
}

/// Has the program import a session.
fn import_into_program(
    command: &InterfaceCommand,
    import: &[OsString],
    writer: &dyn NativeWriter,
    conversation: &NativeConversation<'_>,
    temporary: &Path,
) -> Result<(), Error> {
    let folder = TemporaryFolder::create_in(temporary).map_err(|error| Error::file(temporary, &error))?;
    let file = folder.path().join("session.json");
    write_file(&file, writer, conversation)?;
    let mut arguments = import.to_vec();
    arguments.push(file.into());
    run_program(&command.program, arguments, &command.directory, command.environment.clone()).map_err(
        |reason| {
            let message = format!("{} does not import the session: {reason}", command.name);
            Error::new("not_written", message)
        },
    )
}

/// Writes a session to a new file that only the user can read.
fn write_file(
    file: &Path,
    writer: &dyn NativeWriter,
    conversation: &NativeConversation<'_>,
) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        if let Some(folder) = file.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let created = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
        let mut out = BufWriter::new(created);
        writer.write(conversation, &mut out)?;
        out.flush()?;
        out.get_ref().sync_all()
    };
    write().map_err(|error| Error::file(file, &error))
}

/// Adds the files that the program needs beside that of a session, unless they exist.
fn add_companions(
    file: &Path,
    writer: &dyn NativeWriter,
    conversation: &NativeConversation<'_>,
) -> Result<(), Error> {
    for (path, content) in writer.companions(file, conversation) {
        match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut created) => created.write_all(&content).map_err(|error| Error::file(&path, &error))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::file(&path, &error)),
        }
    }
    Ok(())
}

/// Removes a file, or a folder with all that is in it, for good: without its ledger, a session that comes back after a loss of power would
/// be imported again. What is not there is as good as removed.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    let synced = removed.and_then(|()| fs::File::open(path.parent().unwrap_or(path))?.sync_all());
    synced.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Runs a program without a terminal. Returns why it failed.
fn run_program(
    program: &Path,
    arguments: Vec<OsString>,
    directory: &Path,
    environment: ChildEnvironment,
) -> Result<(), String> {
    let marker =
        Marker::new(RUN_MARKER, Uuid::new_v4().simple().to_string()).map_err(|error| error.to_string())?;
    let mut spawn = Spawn::new(program, directory, environment, Stream::Keep(OUTPUT_BYTES), marker);
    spawn.args = arguments;
    let child = spawn.start().map_err(|error| error.to_string())?;
    let exit = child.wait_timeout(PROGRAM_LIMIT);
    child.stop(&StopTimeouts::default());
    let output = || {
        let (printed, errors) = (child.stdout().to_string(), child.stderr().to_string());
        let last = errors.lines().chain(printed.lines()).rfind(|line| !line.trim().is_empty());
        last.map_or(String::new(), |line| format!(" ({})", azureal_core::visible_line(line.trim())))
    };
    match exit {
        Some(Exit::Code(0)) => Ok(()),
        Some(Exit::Code(code)) => Err(format!("exit code {code}{}", output())),
        Some(_) => Err(format!("it was killed{}", output())),
        None => Err(format!("it took more than {} s", PROGRAM_LIMIT.as_secs())),
    }
}
