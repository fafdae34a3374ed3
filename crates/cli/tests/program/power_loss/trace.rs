//! The file system calls of the real program, read from the output of strace.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A call that changes the disk, or a sync, or the moment in which a turn is acknowledged.
#[derive(Debug, Clone)]
pub(super) enum Op {
    MakeFolder(PathBuf),
    /// Creates the file if it is missing, empties it if `truncate` is set.
    Open {
        path: PathBuf,
        truncate: bool,
    },
    Append(PathBuf, Vec<u8>),
    WriteAt(PathBuf, usize, Vec<u8>),
    Truncate(PathBuf, usize),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    /// Gives a file a second name.
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    /// The program says that a turn is stored.
    Acknowledged,
}

/// Every call that can change a file or a folder. One that [`op`] does not know fails the test.
const CALLS: &str = "open,openat,creat,mkdir,mkdirat,rmdir,write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,\
fallocate,copy_file_range,sendfile,fsync,fdatasync,sync,syncfs,sync_file_range,rename,renameat,renameat2,link,linkat,\
symlink,symlinkat,unlink,unlinkat";

/// The part of the last line of `run --json` that says that the turn is stored.
const ACKNOWLEDGED: &[u8] = b"\"first_seq\":";

/// Runs a command under strace and returns what it did below `root`. `inject` is strace's own option.
pub(super) fn trace(command: &Command, root: &Path, log: &Path, inject: Option<&str>) -> Vec<Op> {
    let mut strace = Command::new("strace");
    // All strings in hexadecimal: no byte of them can pass for strace's own punctuation.
    strace.args(["-f", "-qq", "-y", "-xx", "-s", "10000000", "-e", "signal=none"]);
    strace.args(["-e", &format!("trace={CALLS}")]).arg("-o").arg(log);
    if let Some(inject) = inject {
        strace.args(["-e", &format!("inject={inject}")]);
    }
    strace.arg(command.get_program()).args(command.get_args());
    strace.current_dir(command.get_current_dir().unwrap()).env_clear();
    strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = strace.output().unwrap();
    assert_eq!(output.status.success(), inject.is_none(), "{output:?}");
    ops(&std::fs::read_to_string(log).unwrap(), root)
}

fn ops(log: &str, root: &Path) -> Vec<Op> {
    let mut unfinished: HashMap<&str, String> = HashMap::new();
    let mut ops = Vec::new();
    for line in log.lines() {
        let (pid, rest) = line.split_once(' ').unwrap();
        let rest = rest.trim_start();
        if let Some(start) = rest.strip_suffix("<unfinished ...>") {
            unfinished.insert(pid, start.trim_end().to_owned());
            continue;
        }
        // In the order in which calls return: before that, nobody may rely on them.
        let call = match rest.strip_prefix("<... ") {
            Some(resumed) => {
                let (_, end) = resumed.split_once("resumed>").unwrap();
                unfinished.remove(pid).unwrap() + end
            }
            None => rest.to_owned(),
        };
        ops.extend(op(&call, root));
    }
    ops
}

/// Reads one call; `None` if it failed, or changed nothing below `root`.
fn op(call: &str, root: &Path) -> Option<Op> {
    let (name, rest) = call.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(") = ").or_else(|| rest.rsplit_once(')'))?;
    if result.trim().starts_with(['-', '?']) {
        return None;
    }
    let arguments: Vec<&str> = arguments.split(", ").collect();
    let argument = |index: usize| arguments[index].trim();
    let number = |index: usize| argument(index).parse::<usize>().unwrap();
    // The path of an open file, or of a path below the folder that is open as the argument before it.
    let opened = |index: usize| path(&decode(argument(index), '<', '>')?);
    let below = |folder: usize| Some(opened(folder)?.join(path(&decode(argument(folder + 1), '"', '"')?)?));
    let named = |index: usize| {
        let path = path(&decode(argument(index), '"', '"')?)?;
        assert!(path.is_absolute(), "a path that is relative to an unknown folder: {call}");
        Some(path)
    };
    let data = |index: usize| decode(argument(index), '"', '"').unwrap();
    let open = |path: Option<PathBuf>, flags: &str| {
        let changes = flags.contains("O_CREAT") || flags.contains("O_TRUNC");
        path.filter(|_| changes).map(|path| Op::Open { path, truncate: flags.contains("O_TRUNC") })
    };
    let op = match name {
        "open" => open(named(0), argument(1)),
        "openat" => open(below(0), argument(2)),
        "mkdir" => named(0).map(Op::MakeFolder),
        "mkdirat" => below(0).map(Op::MakeFolder),
        "write" if data(1).windows(ACKNOWLEDGED.len()).any(|part| part == ACKNOWLEDGED) => {
            return Some(Op::Acknowledged);
        }
        "write" => opened(0).map(|path| Op::Append(path, data(1))),
        "pwrite64" => opened(0).map(|path| Op::WriteAt(path, number(3), data(1))),
        "ftruncate" => opened(0).map(|path| Op::Truncate(path, number(1))),
        "fsync" | "fdatasync" => opened(0).map(Op::Sync),
        "rename" => named(0).zip(named(1)).map(|(from, to)| Op::Rename(from, to)),
        "renameat" | "renameat2" => below(0).zip(below(2)).map(|(from, to)| Op::Rename(from, to)),
        "link" => named(0).zip(named(1)).map(|(from, to)| Op::Link(from, to)),
        "linkat" => below(0).zip(below(2)).map(|(from, to)| Op::Link(from, to)),
        "unlink" | "rmdir" => named(0).map(Op::Remove),
        "unlinkat" => below(0).map(Op::Remove),
        // Only of use where it reaches our files; a pipe or a socket is not below the root.
        other => {
            let inside = opened(0).or_else(|| named(0)).is_some_and(|path| path.starts_with(root));
            assert!(!inside, "the model of the disk lacks {other}: {call}");
            None
        }
    };
    op.filter(|op| op.path().starts_with(root))
}

impl Op {
    /// Returns the path that the call is about.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::MakeFolder(path)
            | Self::Open { path, .. }
            | Self::Append(path, _)
            | Self::WriteAt(path, ..)
            | Self::Truncate(path, _)
            | Self::Sync(path)
            | Self::Rename(path, _)
            | Self::Link(path, _)
            | Self::Remove(path) => path,
            Self::Acknowledged => Path::new(""),
        }
    }

    /// Says whether the call changes the content of a file.
    pub(super) fn is_write(&self) -> bool {
        matches!(self, Self::Append(..) | Self::WriteAt(..) | Self::Truncate(..))
    }
}

fn path(bytes: &[u8]) -> Option<PathBuf> {
    std::str::from_utf8(bytes).ok().map(PathBuf::from)
}

/// Decodes the hexadecimal text between two characters; `None` for a file that has no name any more.
fn decode(argument: &str, open: char, close: char) -> Option<Vec<u8>> {
    let (_, rest) = argument.split_once(open)?;
    let (hex, rest) = rest.rsplit_once(close)?;
    assert!(!rest.starts_with("..."), "strace has shortened an argument");
    if rest.contains("deleted") {
        return None;
    }
    let byte = |text: &str| u8::from_str_radix(text, 16).unwrap();
    Some(hex.split("\\x").skip(1).map(byte).collect())
}
