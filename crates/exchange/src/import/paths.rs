//! Import of files and folders, step by step.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use azureal_core::{SessionRecord, SessionStore, StoreError};

use super::recognise::ImportFolder;
use super::{
    ImportError, ImportFormat, ImportOutcome, ImportProgress, ImportSource, IncomingSession, import_session,
};
use crate::copy::copy_originals;

/// The options of an import of files and folders.
#[derive(Clone, Copy)]
pub struct ImportOptions<'a> {
    /// The format of the files.
    pub format: ImportFormat,
    /// The worktree of sessions from formats without worktrees.
    pub worktree: &'a str,
    /// Returns the folder with the originals of a store, by its path.
    pub originals: &'a (dyn Fn(&Path) -> PathBuf + Sync),
    /// The folder for private copies of databases.
    pub temporary: &'a Path,
    /// Says whether a path belongs to the store to import into, which cannot be imported.
    pub is_own_store: &'a (dyn Fn(&Path) -> bool + Sync),
    /// The progress callback of each session.
    pub progress: ImportProgress<'a>,
}

/// A result of a step of an import.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportStep {
    /// A folder also contains files in other formats. The import skips them.
    OtherFiles {
        /// The folder.
        folder: PathBuf,
        /// The number of these files.
        count: u64,
    },
    /// A file in a folder is damaged. The import skips it.
    DamagedFile {
        /// The file.
        path: PathBuf,
        /// The damage.
        error: ImportError,
    },
    /// One of the paths, or a session in it, cannot be imported. The import continues with the next.
    Failed {
        /// The path.
        path: PathBuf,
        /// The reason.
        error: ImportError,
    },
    /// A session is in the store.
    Imported {
        /// The session, with notices and problems.
        session: Box<IncomingSession>,
        /// The result.
        outcome: ImportOutcome,
        /// The session in the store; `None` if it is unchanged.
        record: Option<Box<SessionRecord>>,
        /// The reason why the output of its turns is not in the store, if both stores keep it.
        originals: Result<(), StoreError>,
    },
}

/// The import of files and folders into a store. An error with one of them does not stop the others.
pub struct ImportPaths<'a> {
    store: &'a dyn SessionStore,
    options: ImportOptions<'a>,
    /// Files and folders that follow.
    paths: VecDeque<PathBuf>,
    /// Steps that are done, and were not returned yet.
    steps: VecDeque<ImportStep>,
    /// The open file.
    source: Option<(PathBuf, ImportSource)>,
}

impl<'a> ImportPaths<'a> {
    /// Prepares the import of these files and folders. Of a folder it imports the files, not the folders in it.
    pub fn new(
        store: &'a dyn SessionStore,
        options: ImportOptions<'a>,
        paths: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        let paths = paths.into_iter().collect();
        Self { store, options, paths, steps: VecDeque::new(), source: None }
    }

    /// Performs the next step; `None` at the end.
    ///
    /// # Errors
    ///
    /// An error of the store, or [`ImportError::ImportStopped`]. The import must not be continued after it.
    pub async fn next(&mut self) -> Result<Option<ImportStep>, ImportError> {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Ok(Some(step));
            }
            if let Some(step) = self.next_session().await? {
                return Ok(Some(step));
            }
            let Some(path) = self.paths.pop_front() else {
                return Ok(None);
            };
            if path.is_dir() {
                self.open_folder(path);
            } else {
                self.open_file(path).await;
            }
        }
    }

    /// Imports the next session of the open file; `None` if there is none.
    async fn next_session(&mut self) -> Result<Option<ImportStep>, ImportError> {
        let Some((path, source)) = &mut self.source else {
            return Ok(None);
        };
        let mut session = match source.next().await {
            Some(Ok(session)) => session,
            Some(Err(error)) => return Ok(Some(ImportStep::Failed { path: path.clone(), error })),
            None => {
                self.source = None;
                return Ok(None);
            }
        };
        let ImportOptions { worktree, progress, .. } = self.options;
        let outcome = import_session(self.store, worktree, &mut session, progress).await?;
        let originals = copy_originals(&session, self.store, outcome.session()).await;
        let record = match outcome {
            ImportOutcome::Unchanged { .. } => None,
            // A session that was continued may have got another name since it was imported.
            _ => Some(Box::new(self.store.get(outcome.session()).await?)),
        };
        Ok(Some(ImportStep::Imported { session: Box::new(session), outcome, record, originals }))
    }

    fn open_folder(&mut self, path: PathBuf) {
        let folder = match ImportFolder::read(&path) {
            Ok(folder) => folder,
            Err(error) => return self.steps.push_back(ImportStep::Failed { path, error }),
        };
        if folder.files.is_empty() {
            let error = ImportError::NothingInFolder { path: path.clone() };
            self.steps.push_back(ImportStep::Failed { path, error });
        } else if folder.others > 0 {
            self.steps.push_back(ImportStep::OtherFiles { folder: path, count: folder.others });
        }
        let damaged = folder.damaged.into_iter();
        self.steps.extend(damaged.map(|(path, error)| ImportStep::DamagedFile { path, error }));
        let others = folder.files.into_iter().filter(|file| !(self.options.is_own_store)(file));
        for file in others.rev() {
            self.paths.push_front(file);
        }
    }

    async fn open_file(&mut self, path: PathBuf) {
        let opened = if (self.options.is_own_store)(&path) {
            Err(ImportError::OwnStore { path: path.clone() })
        } else {
            let ImportOptions { format, originals, temporary, .. } = self.options;
            ImportSource::open(&path, format, &originals(&path), temporary).await
        };
        match opened {
            Ok(source) => self.source = Some((path, source)),
            Err(error) => self.steps.push_back(ImportStep::Failed { path, error }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::ControlFlow;

    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::*;

    const ANOTHER: &str =
        r#"{"id":"b","model":"m","created_at":"2026-01-01","messages":[{"role":"user","content":"b"}]}"#;
    const FIRST: &str =
        r#"{"id":"a","model":"m","created_at":"2025-01-01","messages":[{"role":"user","content":"a"}]}"#;

    /// Imports a path, and returns a word for each step.
    fn steps(store: &MemoryStore, path: &Path, own: &Path) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let options = ImportOptions {
            format: ImportFormat::Auto,
            worktree: ".",
            originals: &Path::to_path_buf,
            temporary: folder.path(),
            is_own_store: &|path| path == own,
            progress: &|_| ControlFlow::Continue(()),
        };
        let mut import = ImportPaths::new(store, options, [path.to_owned()]);
        let mut steps = Vec::new();
        while let Some(step) = block_on(import.next()).unwrap() {
            let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
            steps.push(match step {
                ImportStep::OtherFiles { count, .. } => format!("others {count}"),
                ImportStep::DamagedFile { path, .. } => format!("damaged {}", name(&path)),
                ImportStep::Failed { path, .. } => format!("failed {}", name(&path)),
                ImportStep::Imported { outcome, record, .. } => {
                    format!(
                        "{} {}",
                        outcome.session(),
                        record.map_or("unchanged".into(), |record| record.name)
                    )
                }
            });
        }
        steps
    }

    #[test]
    fn a_folder_is_imported_file_by_file_with_the_oldest_session_first() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("1", ANOTHER), ("2", FIRST), ("3", "hello"), ("4", r#"{"id":"c","mod"#)] {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let store = MemoryStore::default();
        let own = Path::new("own");
        assert_eq!(steps(&store, folder.path(), own), ["others 1", "damaged 4", "S1 a", "S2 b"]);
        let again = ["others 1", "damaged 4", "S1 unchanged", "S2 unchanged"];
        assert_eq!(steps(&store, folder.path(), own), again);
    }

    #[test]
    fn the_store_to_import_into_is_not_imported() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        fs::write(&own, FIRST).unwrap();
        fs::write(folder.path().join("other"), ANOTHER).unwrap();
        let store = MemoryStore::default();
        assert_eq!(steps(&store, &own, &own), ["failed own"]);
        assert_eq!(steps(&store, folder.path(), &own), ["S1 b"]);
    }

    #[test]
    fn a_path_that_cannot_be_imported_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().file_name().unwrap().to_string_lossy();
        let store = MemoryStore::default();
        assert_eq!(steps(&store, folder.path(), Path::new("own")), [format!("failed {name}")]);
        assert_eq!(steps(&store, &folder.path().join("missing"), Path::new("own")), ["failed missing"]);
    }

    #[test]
    fn an_import_can_move_to_another_thread_and_be_stopped() {
        fn check(future: impl Future<Output = Result<Option<ImportStep>, ImportError>> + Send) {
            assert!(matches!(block_on(future), Err(ImportError::ImportStopped)));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, FIRST).unwrap();
        let store = MemoryStore::default();
        let options = ImportOptions {
            format: ImportFormat::Auto,
            worktree: "",
            originals: &Path::to_path_buf,
            temporary: Path::new("."),
            is_own_store: &|_| false,
            progress: &|_| ControlFlow::Break(()),
        };
        check(ImportPaths::new(&store, options, [path]).next());
    }
}
