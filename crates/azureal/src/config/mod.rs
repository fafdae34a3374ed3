//! The configuration of the user and the project.
//!
//! Up to five files: `azufig.toml` and cllm's `Cllmfile.yml`, of the project and of the user. Each is read once into
//! [`ConfigFile`]; a setting comes from the nearest file that has it. A file of the project has no effect until it is
//! trusted ([`trust`]). So no other code here checks trust: a file that is not trusted is treated as absent.

mod azufig;
pub(crate) mod bounded;
mod cllm_name;
mod cllmfile;
mod describe;
mod file;
mod jinja;
mod node;
mod overrides;
pub mod owner;
mod percent;
mod plain_scalar;
mod settings;
mod template;
pub mod trust;
mod ui;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal_core::agent::Permission;
use azureal_core::{ContextCommand, Redactor, Threshold};
use azureal_engine::OutputLimit;
use tracing::{debug, info};

pub use self::cllm_name::CLLM_CONFIG;
pub use self::describe::{describe, terms};
pub use self::file::ConfigFile;
pub use self::settings::{Caching, KeepOriginals, Variable, permission_name, seconds};
pub(crate) use self::template::shell_quoted;
pub use self::ui::{ConfiguredKeys, ThemeChoice, Ui};

use self::cllm_name::CllmName;
use self::file::{Detail, Format};
use self::overrides::{Override, Overrides};
use self::settings::{Located, Settings};
use self::template::Variables;
use self::trust::{Approvals, Standing};
use crate::environment::Environment;
use crate::error::{Error, quoted};
use crate::project::Project;

/// A configuration file with every key in it, as a comment.
pub const STARTER: &str = include_str!("starter.toml");

/// The path of our own file in a project.
pub const AZUFIG: &str = ".azureal/azufig.toml";

/// The configuration, and its sources.
#[derive(Debug)]
pub struct Config {
    /// The top of the worktree.
    worktree: PathBuf,
    environment: Environment,
    overrides: Overrides,
    /// The nearest to the project first.
    files: Vec<ConfigFile>,
    standing: Standing,
}

/// The user's own choice about the output of turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OriginalsChoice {
    /// The time for which it is kept.
    pub keep: KeepOriginals,
    /// Whether a store on a server gets it.
    pub share: bool,
}

impl OriginalsChoice {
    /// Reads the user's own file, in which alone the choice can be. A file that cannot be read is reported by the commands that
    /// need the rest of it.
    pub fn of_user(environment: &Environment) -> Self {
        let path = environment.configuration().map(|folder| folder.join("azufig.toml"));
        let file = path.and_then(|path| ConfigFile::of_user(path, Format::Azufig).ok().flatten());
        let Some(Settings { keep_originals, share_originals, .. }) = file.map(|file| file.settings) else {
            return Self::default();
        };
        Self {
            keep: keep_originals.map_or_else(KeepOriginals::default, |keep| keep.value),
            share: share_originals.is_some_and(|share| share.value),
        }
    }

    /// Returns whether a store on a server gets the output of new turns.
    pub fn reach_servers(self) -> bool {
        self.share && self.keep != KeepOriginals::Off
    }
}

/// A value that is in effect, and the file and line that it comes from.
#[derive(Debug, Clone, Copy)]
pub struct ConfiguredValue<'a, T> {
    /// The value.
    pub value: &'a T,
    /// The file.
    pub file: &'a ConfigFile,
    /// The line.
    pub line: usize,
}

/// A value that is in effect, wherever it comes from.
#[derive(Debug, Clone, Copy)]
pub enum Chosen<'a, T> {
    /// From this environment variable.
    Environment(&'a T, &'static str),
    /// From a file.
    File(ConfiguredValue<'a, T>),
}

impl<'a, T> Chosen<'a, T> {
    /// Returns the value.
    pub fn value(&self) -> &'a T {
        match self {
            Self::Environment(value, _) => value,
            Self::File(found) => found.value,
        }
    }
}

/// The largest size of all snapshots of a project by default, in bytes.
pub(crate) const CHANGES_SIZE: u64 = 2_000_000_000;

impl Config {
    /// Reads the files of a project and of the user.
    ///
    /// An unreadable file is an error before the question of trust: a file that cannot be parsed cannot be shown to
    /// the user who is to trust it. The error repeats nothing of a project's file.
    pub fn load(project: &Project, environment: &Environment) -> Result<Self, Error> {
        Self::read(project.directory(), environment.clone(), Detail::Position)
    }

    /// Like [`load`](Self::load), for commands that show what the files say: errors do so too.
    pub fn load_to_show(project: &Project, environment: &Environment) -> Result<Self, Error> {
        Self::read(project.directory(), environment.clone(), Detail::Content)
    }

    /// Returns a configuration without any file or variable.
    pub fn empty() -> Self {
        Self {
            worktree: PathBuf::new(),
            environment: Environment::default(),
            overrides: Overrides::default(),
            files: Vec::new(),
            standing: Standing::NoFiles,
        }
    }

    fn read(worktree: &Path, environment: Environment, detail: Detail) -> Result<Self, Error> {
        let cllm = CllmName::of(&environment)?;
        let (cllmfile, hidden) = (cllm.file(), format!(".cllm/{}", cllm.file()));
        let own: Vec<(PathBuf, Format)> = [
            (environment.configuration().map(|folder| folder.join("azufig.toml")), Format::Azufig),
            (environment.home().map(|home| home.join(&hidden)), Format::Cllmfile),
        ]
        .into_iter()
        .filter_map(|(path, format)| Some((path?, format)))
        .collect();
        let of_project =
            [(AZUFIG, Format::Azufig), (&*cllmfile, Format::Cllmfile), (&*hidden, Format::Cllmfile)];
        let mut files = Vec::new();
        for (name, format) in of_project {
            let path = worktree.join(name);
            // If the project is the user's home, the files there are the user's.
            if own.iter().all(|(own, _)| with_real_folder(own).as_deref() != Some(&path)) {
                files.extend(ConfigFile::of_project(worktree, name, format, detail)?);
            }
        }
        for (path, format) in own {
            files.extend(ConfigFile::of_user(path, format)?);
        }
        if files.iter().all(|file| file.format != Format::Cllmfile)
            && let Some(error) = cllm.missing(worktree, &environment)
        {
            return Err(error);
        }
        let overrides = Overrides::of(&environment)?;
        let worktree = worktree.to_owned();
        let mut config = Self { worktree, environment, overrides, files, standing: Standing::NoFiles };
        config.standing = Approvals::of(&config.environment).standing_of(&config);
        config.log_files();
        Ok(config)
    }

    /// Logs which files count and which do not, by their paths: what is in them may be secret.
    fn log_files(&self) {
        for file in &self.files {
            let (path, of_project) = (file.path(), file.is_of_project());
            match &self.standing {
                _ if file.settings.is_empty() => debug!(?path, "ignored a configuration file: it is empty"),
                _ if self.counts(file) => info!(?path, of_project, "uses a configuration file"),
                Standing::Changed => {
                    info!(?path, "ignored a configuration file: changed since it was trusted");
                }
                _ => info!(?path, "ignored a configuration file: not trusted"),
            }
        }
    }

    /// Returns the files that were found, the nearest first.
    pub fn files(&self) -> &[ConfigFile] {
        &self.files
    }

    /// Returns the names of the configurations of cllm that are here, in the project and in the user's home.
    pub fn cllm_names(&self) -> BTreeSet<String> {
        cllm_name::names(&self.worktree, &self.environment)
    }

    /// Returns the files of the project that say something, which is what trust is about.
    pub fn project_files(&self) -> impl Iterator<Item = &ConfigFile> {
        self.files.iter().filter(|file| file.is_of_project() && !file.settings.is_empty())
    }

    /// Returns whether the settings of a file have an effect.
    pub fn counts(&self, file: &ConfigFile) -> bool {
        !file.is_of_project() || self.standing.is_trusted()
    }

    /// Returns the agent to use if the user names none.
    pub fn agent(&self) -> Option<&str> {
        self.find_agent().map(|chosen| chosen.value().as_str())
    }

    /// Returns the model to use if the user names none.
    pub fn model(&self) -> Option<&str> {
        self.find_model().map(|chosen| chosen.value().as_str())
    }

    /// Returns the permission of agents if the command line has none.
    pub fn permission(&self) -> Option<Permission> {
        self.find_permission().map(|chosen| *chosen.value())
    }

    /// Returns the time limit of a turn if the command line has none.
    pub fn timeout(&self) -> Option<Duration> {
        self.find_timeout().map(|chosen| *chosen.value())
    }

    /// Returns the size since the last compaction at which the session is compacted again.
    pub fn compaction_threshold(&self) -> Threshold {
        self.find_threshold().map_or_else(Threshold::default, |found| *found.value)
    }

    /// Returns how long the output of turns is kept.
    pub fn keep_originals(&self) -> KeepOriginals {
        self.find_keep_originals().map_or_else(KeepOriginals::default, |found| *found.value)
    }

    /// Finds how long the output of turns is kept.
    pub fn find_keep_originals(&self) -> Option<ConfiguredValue<'_, KeepOriginals>> {
        self.first(|settings| settings.keep_originals.as_ref())
    }

    /// Finds whether the output of turns may go to servers.
    pub fn find_share_originals(&self) -> Option<ConfiguredValue<'_, bool>> {
        self.first(|settings| settings.share_originals.as_ref())
    }

    /// Returns whether the changes of turns are recorded.
    pub fn records_changes(&self) -> bool {
        self.find_record_changes().is_none_or(|found| *found.value)
    }

    /// Finds whether the changes of turns are recorded.
    pub fn find_record_changes(&self) -> Option<ConfiguredValue<'_, bool>> {
        self.first(|settings| settings.record_changes.as_ref())
    }

    /// Returns the largest size of all snapshots of the project, in bytes.
    pub fn changes_size(&self) -> u64 {
        self.find_changes_size().map_or(CHANGES_SIZE, |found| *found.value)
    }

    /// Finds the largest size of all snapshots of the project.
    pub fn find_changes_size(&self) -> Option<ConfiguredValue<'_, u64>> {
        self.first(|settings| settings.changes_size.as_ref())
    }

    /// Returns whether agents can look things up in the stored sessions.
    pub fn recall(&self) -> bool {
        self.find_recall().is_some_and(|found| *found.value)
    }

    /// Finds whether agents can look things up in the stored sessions.
    pub fn find_recall(&self) -> Option<ConfiguredValue<'_, bool>> {
        self.first(|settings| settings.recall.as_ref())
    }

    /// Returns whether histories are sent to Claude Code for the provider's prompt cache.
    pub fn claude_cache(&self) -> Caching {
        self.find_claude_cache().map_or_else(Caching::default, |found| *found.value)
    }

    /// Returns the limit of an agent's output in one turn.
    pub fn output_limit(&self) -> OutputLimit {
        self.find_output_limit().map_or_else(OutputLimit::default, |found| *found.value)
    }

    /// Returns the first message of every new session, unless the command line has another.
    pub fn default_system_message(&self) -> Option<String> {
        let found = self.find_default_system_message()?;
        // An empty one is how a project does without that of the user.
        (!found.value.trim().is_empty()).then(|| self.expanded(found.file, found.value))
    }

    /// Finds the agent that answers if none is named.
    pub fn find_agent(&self) -> Option<Chosen<'_, String>> {
        self.chosen(self.overrides.agent.as_ref(), |settings| settings.agent.as_ref())
    }

    /// Finds the model.
    pub fn find_model(&self) -> Option<Chosen<'_, String>> {
        self.chosen(self.overrides.model.as_ref(), |settings| settings.model.as_ref())
    }

    /// Finds what agents may do.
    pub fn find_permission(&self) -> Option<Chosen<'_, Permission>> {
        self.chosen(self.overrides.permission.as_ref(), |settings| settings.permission.as_ref())
    }

    /// Finds the time limit of a turn.
    pub fn find_timeout(&self) -> Option<Chosen<'_, Duration>> {
        self.chosen(self.overrides.timeout.as_ref(), |settings| settings.timeout.as_ref())
    }

    /// Finds the size at which a session is compacted.
    pub fn find_threshold(&self) -> Option<ConfiguredValue<'_, Threshold>> {
        self.first(|settings| settings.threshold.as_ref())
    }

    /// Finds whether histories are sent to Claude Code for the prompt cache.
    pub fn find_claude_cache(&self) -> Option<ConfiguredValue<'_, Caching>> {
        self.first(|settings| settings.claude_cache.as_ref())
    }

    /// Finds the user's own patterns of secrets.
    pub fn find_redact_patterns(&self) -> Option<ConfiguredValue<'_, Vec<String>>> {
        self.first(|settings| settings.redact_patterns.as_ref())
    }

    /// Finds the limit of an agent's output.
    pub fn find_output_limit(&self) -> Option<ConfiguredValue<'_, OutputLimit>> {
        self.first(|settings| settings.output_limit.as_ref())
    }

    /// Finds the first message of new sessions.
    pub fn find_default_system_message(&self) -> Option<ConfiguredValue<'_, String>> {
        self.first(|settings| settings.default_system_message.as_ref())
    }

    /// Returns the variables that are declared, each as the nearest file has it.
    pub fn find_variables(&self) -> Vec<(&str, ConfiguredValue<'_, Variable>)> {
        let mut found: Vec<(&str, ConfiguredValue<'_, Variable>)> = Vec::new();
        for file in self.in_effect() {
            for (name, variable) in &file.settings.variables {
                if found.iter().all(|(known, _)| known != name) {
                    found.push((name, ConfiguredValue { value: &variable.value, file, line: variable.line }));
                }
            }
        }
        found
    }

    /// Returns the context commands as they are written. Of each format the nearest list counts alone; ours
    /// comes before cllm's.
    pub fn find_context_commands(&self) -> Vec<ConfiguredValue<'_, ContextCommand>> {
        let nearest = |format: Format| {
            self.in_effect()
                .filter(move |file| file.format == format)
                .find_map(|file| Some((file, file.settings.context_commands.as_ref()?)))
        };
        [Format::Azufig, Format::Cllmfile]
            .into_iter()
            .filter_map(nearest)
            .flat_map(|(file, commands)| {
                commands.iter().map(move |Located { value, line }| ConfiguredValue {
                    value,
                    file,
                    line: *line,
                })
            })
            .collect()
    }

    /// Returns the context commands with their variables filled in: `azufig.toml`'s, then `Cllmfile.yml`'s.
    pub fn context_commands(&self, vars: &[(String, String)]) -> Result<Vec<ContextCommand>, Error> {
        self.commands_that(|_| true, vars)
    }

    /// Returns those of them that run at every turn. A turn that continues a session needs no others, and so
    /// none of the variables that only the others ask for.
    pub fn dynamic_commands(&self, vars: &[(String, String)]) -> Result<Vec<ContextCommand>, Error> {
        self.commands_that(|command| command.dynamic, vars)
    }

    fn commands_that(
        &self,
        are_meant: impl Fn(&ContextCommand) -> bool,
        vars: &[(String, String)],
    ) -> Result<Vec<ContextCommand>, Error> {
        let commands = self.find_context_commands().into_iter().filter(|found| are_meant(found.value));
        commands
            .map(|found| {
                let template = &found.value.command;
                let command = self.fill_in(template, vars).map_err(|failure| {
                    failure.about(&format!("{found}: context command {}", quoted(&found.value.name)))
                })?;
                Ok(ContextCommand { command, template: Some(template.clone()), ..found.value.clone() })
            })
            .collect()
    }

    /// Fills in the variables of one command: `vars` of the command line over the environment over what is
    /// declared in files.
    pub fn fill_in(&self, command: &str, vars: &[(String, String)]) -> Result<String, Error> {
        let declared = self.find_variables().into_iter().map(|(name, found)| match found.value {
            Variable::Text(text) => (name, Variable::Text(self.expanded(found.file, text))),
            other => (name, other.clone()),
        });
        let variables =
            Variables { given: vars, environment: &self.environment, declared: declared.collect() };
        // The program of a unit test cannot be started for a template.
        let fill_in = if cfg!(test) { template::fill_in } else { bounded::fill_in };
        fill_in(command, &variables)
    }

    /// Returns whether the environment gives a variable its value.
    pub fn is_in_environment(&self, name: &str) -> bool {
        self.environment.variable(name).is_some()
    }

    fn in_effect(&self) -> impl Iterator<Item = &ConfigFile> {
        self.files.iter().filter(|file| self.counts(file))
    }

    /// Finds a setting in the environment, else in the nearest file that has it.
    fn chosen<'a, T>(
        &'a self,
        environment: Option<&'a Override<T>>,
        setting: impl Fn(&'a Settings) -> Option<&'a Located<T>>,
    ) -> Option<Chosen<'a, T>> {
        match environment {
            Some(Override { value, variable }) => Some(Chosen::Environment(value, variable)),
            None => self.first(setting).map(Chosen::File),
        }
    }

    /// Finds a setting in the nearest file that has it.
    fn first<'a, T>(
        &'a self,
        setting: impl Fn(&'a Settings) -> Option<&'a Located<T>>,
    ) -> Option<ConfiguredValue<'a, T>> {
        self.in_effect().find_map(|file| {
            let Located { value, line } = setting(&file.settings)?;
            Some(ConfiguredValue { value, file, line: *line })
        })
    }

    /// Fills in environment variables, which values in cllm's format may hold.
    fn expanded(&self, file: &ConfigFile, text: &str) -> String {
        match file.format {
            Format::Azufig => text.to_owned(),
            Format::Cllmfile => self.environment.expand(text),
        }
    }
}

/// Creates a redactor from the environment and the user's own `azufig.toml`. No other file can set patterns.
pub fn redactor(environment: &Environment) -> Result<Redactor, Error> {
    let patterns =
        own_file(environment)?.and_then(|file| file.settings.redact_patterns).map(|found| found.value);
    let variables =
        environment.variables().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    Redactor::new(variables, &patterns.unwrap_or_default())
        .map_err(|error| Error::new("config", error.to_string()).with_source(error))
}

/// Returns the settings of the terminal from the environment and the user's own `azufig.toml`. No other file can have them, so a project
/// is not needed.
pub fn ui(environment: &Environment) -> Result<Ui, Error> {
    let files = own_file(environment)?.into_iter().collect();
    Ok(Config { files, environment: environment.clone(), ..Config::empty() }.ui())
}

/// Reads the user's own `azufig.toml`.
fn own_file(environment: &Environment) -> Result<Option<ConfigFile>, Error> {
    let path = environment.configuration().map(|folder| folder.join("azufig.toml"));
    Ok(path.map(|path| ConfigFile::of_user(path, Format::Azufig)).transpose()?.flatten())
}

/// As `file:line`.
impl<T> std::fmt::Display for ConfiguredValue<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file.path().display(), self.line)
    }
}

/// Reads `NAME=VALUE`, as `--var` has it.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("not of the form NAME=VALUE")?;
    if !settings::is_variable_name(name) {
        return Err(format!("{} is not a name for a variable; {}", quoted(name), settings::VARIABLE_NAME));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Returns a path with links in its folder followed, so that it can be compared.
fn with_real_folder(path: &Path) -> Option<PathBuf> {
    Some(std::fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A project and a home, each with their files.
    struct Folders {
        folder: TempDir,
    }

    impl Folders {
        fn new(files: &[(&str, &str)]) -> Self {
            let folders = Self { folder: TempDir::new().unwrap() };
            for path in ["p", "h"] {
                fs::create_dir(folders.path(path)).unwrap();
            }
            for (path, text) in files {
                let path = folders.path(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            folders
        }

        fn path(&self, path: &str) -> PathBuf {
            fs::canonicalize(self.folder.path()).unwrap().join(path)
        }

        fn read(&self, worktree: &str, environment: &[(&str, &str)]) -> Config {
            let home = self.path("h");
            let mut variables = vec![("HOME", home.to_str().unwrap())];
            variables.extend(environment);
            Config::read(&self.path(worktree), Environment::from(variables.as_slice()), Detail::Content)
                .unwrap()
        }

        /// Reads what is there, and trusts it.
        fn trusted(&self, environment: &[(&str, &str)]) -> Config {
            let mut config = self.read("p", environment);
            trust::approve(&mut config).unwrap();
            config
        }
    }

    fn names(config: &Config) -> Vec<String> {
        config.context_commands(&[]).unwrap().into_iter().map(|command| command.name).collect()
    }

    /// A list of one command, in our format.
    fn ours(name: &str) -> String {
        format!("[[context_commands]]\nname = \"{name}\"\ncommand = \"true\"\n")
    }

    /// A list of one command, in cllm's format.
    fn theirs(name: &str) -> String {
        format!("context_commands:\n  - name: {name}\n    command: \"true\"\n")
    }

    #[test]
    fn a_named_configuration_of_cllm_replaces_the_one_without_a_name() {
        let files = [
            ("p/Cllmfile.yml", theirs("plain")),
            ("p/review.Cllmfile.yml", theirs("top review")),
            ("p/.cllm/review.Cllmfile.yml", "default_system_message: hidden review\n".to_owned()),
            ("p/.cllm/debug.Cllmfile.yml", theirs("debug")),
            ("h/.cllm/mine.Cllmfile.yml", theirs("mine")),
            ("h/.cllm/Cllmfile.yml", "default_system_message: own\n".to_owned()),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let folders = Folders::new(&files);
        assert_eq!(names(&folders.trusted(&[])), ["plain"]);
        let review = folders.trusted(&[(CLLM_CONFIG, "review")]);
        assert_eq!(names(&review), ["top review"]);
        assert_eq!(review.default_system_message().as_deref(), Some("hidden review"));
        assert_eq!(names(&folders.trusted(&[(CLLM_CONFIG, "mine")])), ["mine"]);
        assert_eq!(review.cllm_names(), ["debug", "mine", "review"].map(str::to_owned).into());
        // Trust in one is no trust in another.
        assert_eq!(names(&folders.read("p", &[(CLLM_CONFIG, "debug")])), [""; 0]);
        let read = |name: &str| {
            let home = folders.path("h");
            let variables = [("HOME", home.to_str().unwrap()), (CLLM_CONFIG, name)];
            Config::read(&folders.path("p"), Environment::from(&variables[..]), Detail::Content).unwrap_err()
        };
        let missing = read("reveiw");
        assert_eq!(missing.message(), "there is no configuration `reveiw` of cllm; did you mean `review`?");
        for name in ["../p/review", ".hidden", "a/b"] {
            assert_eq!(read(name).kind(), "usage", "{name}");
        }
    }

    #[test]
    fn the_nearest_list_of_each_format_counts_and_ours_comes_first() {
        let near = [
            (".azureal/azufig.toml", ours("project azufig")),
            ("Cllmfile.yml", theirs("top")),
            (".cllm/Cllmfile.yml", theirs("folder")),
        ]
        .map(|(path, text)| (format!("p/{path}"), text));
        let own = [
            ("h/.config/azureal/azufig.toml".to_owned(), ours("user azufig")),
            ("h/.cllm/Cllmfile.yml".to_owned(), theirs("home")),
        ];
        let all: Vec<&(String, String)> = near.iter().chain(&own).collect();
        // Which of the five files there are, and whose commands count.
        for (present, expected) in [
            ([true, true, true, true, true], vec!["project azufig", "top"]),
            ([false, true, true, true, true], vec!["user azufig", "top"]),
            ([true, false, true, true, true], vec!["project azufig", "folder"]),
            ([true, false, false, true, true], vec!["project azufig", "home"]),
            ([false, false, false, true, true], vec!["user azufig", "home"]),
            ([false, false, true, false, true], vec!["folder"]),
            ([true, false, false, false, false], vec!["project azufig"]),
            ([false, false, false, false, false], vec![]),
        ] {
            let files: Vec<(&str, &str)> = all
                .iter()
                .zip(present)
                .filter(|(_, present)| *present)
                .map(|((path, text), _)| (path.as_str(), text.as_str()))
                .collect();
            assert_eq!(names(&Folders::new(&files).trusted(&[])), expected, "{present:?}");
        }
    }

    #[test]
    fn a_list_replaces_and_variables_merge() {
        let folders = Folders::new(&[
            ("p/.azureal/azufig.toml", "[variables]\nA = 1\n"),
            ("p/Cllmfile.yml", "context_commands: []\nvariables: {A: 2, B: 2}"),
            ("h/.config/azureal/azufig.toml", "[variables]\nB = 3\nC = 3\n"),
            ("h/.cllm/Cllmfile.yml", &format!("variables: {{C: 4, D: 4}}\n{}", theirs("home"))),
        ]);
        let config = folders.trusted(&[]);
        assert_eq!(names(&config), [""; 0]);
        assert_eq!(config.fill_in("{{ A }}{{ B }}{{ C }}{{ D }}", &[]).unwrap(), "1234");
    }

    #[test]
    fn the_nearest_value_counts() {
        let folders = Folders::new(&[
            ("p/.azureal/azufig.toml", "model = \"near\"\n"),
            ("p/Cllmfile.yml", "default_system_message: near ${WHO} ${NOBODY}\nmodel: ignored"),
            (
                "h/.config/azureal/azufig.toml",
                "agent = \"codex\"\nmodel = \"far\"\ndefault_system_message = \"far\"\n\
                 [compaction]\nthreshold_tokens = 5\n[turn]\noutput_limit_mib = 7\n[claude]\ncache = \"off\"\n",
            ),
        ]);
        let config = folders.trusted(&[("WHO", "me")]);
        assert_eq!(config.output_limit(), OutputLimit::of_mib(7));
        assert_eq!(config.claude_cache(), Caching::Off);
        assert_eq!((config.agent(), config.model()), (Some("codex"), Some("near")));
        assert_eq!(config.compaction_threshold(), Threshold::Tokens(5));
        assert_eq!(config.default_system_message().as_deref(), Some("near me ${NOBODY}"));
        let Some(Chosen::File(found)) = config.find_agent() else { panic!("it is in a file") };
        assert_eq!(
            found.to_string(),
            format!("{}:1", folders.path("h/.config/azureal/azufig.toml").display())
        );
    }

    #[test]
    fn the_environment_counts_before_the_project_and_that_before_the_user() {
        let folders = Folders::new(&[
            ("p/.azureal/azufig.toml", "model = \"near\"\n[turn]\npermission = \"read\"\n"),
            (
                "h/.config/azureal/azufig.toml",
                "agent = \"codex\"\nmodel = \"far\"\n[turn]\npermission = \"all\"\ntimeout = 1.5\n",
            ),
        ]);
        let of = |config: &Config| {
            let (agent, model) = (config.agent().map(str::to_owned), config.model().map(str::to_owned));
            (agent, model, config.permission(), config.timeout())
        };
        let text = |text: &str| Some(text.to_owned());
        let timeout = Some(Duration::from_millis(1500));
        let untrusted = folders.read("p", &[]);
        assert_eq!(of(&untrusted), (text("codex"), text("far"), Some(Permission::All), timeout));
        let trusted = folders.trusted(&[]);
        assert_eq!(of(&trusted), (text("codex"), text("near"), Some(Permission::Read), timeout), "it lowers");
        let set = [
            ("AZUREAL_AGENT", "claude"),
            ("AZUREAL_MODEL", "opus"),
            ("AZUREAL_PERMISSION", "edit"),
            ("AZUREAL_TIMEOUT", "600"),
        ];
        let expected = (text("claude"), text("opus"), Some(Permission::Edit), Some(Duration::from_secs(600)));
        assert_eq!(of(&folders.trusted(&set)), expected);
    }

    #[test]
    fn files_are_logged_by_their_paths_and_never_by_their_content() {
        let folders = Folders::new(&[
            ("p/.azureal/azufig.toml", "default_system_message = 'a-secret'\n"),
            ("h/.config/azureal/azufig.toml", "model = 'a-secret'\n"),
        ]);
        let log = azureal_testkit::captured_log(|| drop(folders.read("p", &[("AZUREAL_MODEL", "a-secret")])));
        let line = |message: &str| log.lines().find(|line| line.contains(message)).unwrap_or_default();
        assert!(line("uses a configuration file").contains("h/.config/azureal/azufig.toml"), "{log}");
        assert!(line("not trusted").contains("p/.azureal/azufig.toml"), "{log}");
        assert!(!log.contains("a-secret"), "{log}");
        folders.trusted(&[]);
        fs::write(folders.path("p/.azureal/azufig.toml"), "model = 'a-secret'\n").unwrap();
        let log = azureal_testkit::captured_log(|| drop(folders.read("p", &[])));
        assert!(log.contains("changed since it was trusted") && !log.contains("a-secret"), "{log}");
    }

    #[test]
    fn what_is_not_trusted_is_not_there() {
        let folders = Folders::new(&[
            (
                "p/.azureal/azufig.toml",
                "agent = \"claude\"\nmodel = \"m\"\ndefault_system_message = \"s\"\n\
                 [compaction]\nthreshold_tokens = 5\n[turn]\noutput_limit_mib = 7\n[variables]\nA = 1\n",
            ),
            ("p/Cllmfile.yml", &theirs("project")),
            ("h/.cllm/Cllmfile.yml", &theirs("home")),
        ]);
        let config = folders.read("p", &[]);
        assert_eq!(names(&config), ["home"]);
        assert_eq!((config.agent(), config.model(), config.default_system_message()), (None, None, None));
        assert_eq!(config.compaction_threshold(), Threshold::Chars(400_000));
        assert_eq!(config.output_limit(), OutputLimit::default());
        assert_eq!(config.claude_cache(), Caching::Auto);
        assert_eq!(config.fill_in("{{ A }}", &[]).unwrap_err().kind(), "variable");
    }

    #[test]
    fn an_empty_message_is_none() {
        let folders = Folders::new(&[
            ("p/.azureal/azufig.toml", "default_system_message = \"\"\n"),
            ("h/.cllm/Cllmfile.yml", "default_system_message: far"),
        ]);
        assert_eq!(folders.read("p", &[]).default_system_message().as_deref(), Some("far"));
        assert_eq!(folders.trusted(&[]).default_system_message(), None);
    }

    #[test]
    fn in_the_home_itself_only_what_is_not_the_users_needs_trust() {
        let folders =
            Folders::new(&[("h/.cllm/Cllmfile.yml", &theirs("own")), ("h/Cllmfile.yml", &theirs("top"))]);
        let config = folders.read("h", &[]);
        assert_eq!(names(&config), ["own"]);
        assert_eq!(
            config.project_files().map(ConfigFile::path).collect::<Vec<_>>(),
            [folders.path("h/Cllmfile.yml")]
        );
    }

    #[test]
    fn a_link_within_the_project_is_read_and_one_to_the_users_own_file_is_not() {
        let folders = Folders::new(&[("h/.cllm/Cllmfile.yml", &theirs("own")), ("p/x.yml", &theirs("x"))]);
        std::os::unix::fs::symlink("x.yml", folders.path("p/Cllmfile.yml")).unwrap();
        let config = folders.read("p", &[]);
        let linked = config.project_files().next().unwrap();
        assert_eq!(linked.leads_to(), Some(folders.path("p/x.yml").as_path()));
        assert!(!config.counts(linked));
        // Also where a folder on the way is the link.
        std::os::unix::fs::symlink(folders.path("h/.cllm"), folders.path("p/.cllm")).unwrap();
        let failure = Config::read(&folders.path("p"), Environment::default(), Detail::Content).unwrap_err();
        assert!(failure.message().ends_with("p/.cllm/Cllmfile.yml` leads out of the project"), "{failure:?}");
    }

    #[test]
    fn a_turn_that_goes_on_asks_only_for_what_its_commands_need() {
        let text = "variables: {TEST: null}\ncontext_commands:\n\
                    - {name: once, command: 'test {{ TEST }}'}\n- {name: always, command: date, dynamic: true}\n";
        let config = Folders::new(&[("p/Cllmfile.yml", text)]).trusted(&[]);
        let failure = config.context_commands(&[]).unwrap_err();
        assert!(
            failure.message().ends_with(
                "Cllmfile.yml:3: context command `once`: the variable `TEST` must be given a value"
            ),
            "{}",
            failure.message()
        );
        let commands = config.dynamic_commands(&[]).unwrap();
        assert_eq!(commands.into_iter().map(|command| command.name).collect::<Vec<_>>(), ["always"]);
        let commands = config.context_commands(&[("TEST".to_owned(), "x".to_owned())]).unwrap();
        assert_eq!(commands.first().unwrap().command, "test x");
    }

    #[test]
    fn what_was_read_is_what_is_trusted_and_used() {
        let folders = Folders::new(&[("p/Cllmfile.yml", &theirs("shown"))]);
        let mut config = folders.read("p", &[]);
        // Between being shown and the answer, another program changes the file.
        fs::write(folders.path("p/Cllmfile.yml"), theirs("hidden")).unwrap();
        trust::approve(&mut config).unwrap();
        assert_eq!(names(&config), ["shown"]);
        let config = folders.read("p", &[]);
        assert_eq!(*trust::standing(&config), Standing::Changed);
        assert_eq!(names(&config), [""; 0]);
    }

    #[test]
    fn the_commands_of_a_cllm_configuration_are_filled_in() {
        let text = include_str!("../../tests/fixtures/cllm/templated.Cllmfile.yml");
        let config =
            Folders::new(&[("p/Cllmfile.yml", text)]).trusted(&[("TEAM", "core"), ("BRANCH", "dev")]);
        let given = [("TEST_NAME", "login"), ("VERBOSE", "true")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let commands = config.context_commands(&given).unwrap();
        assert_eq!(
            commands.iter().map(|command| command.command.as_str()).collect::<Vec<_>>(),
            [
                "cat README.md | head -n 50",
                "git diff main..dev --stat",
                "pytest -k login -vv",
                "git log -n 10 --author core",
            ]
        );
        assert_eq!(config.default_system_message().as_deref(), Some("Review for core."));
    }

    #[test]
    fn variables_on_the_command_line_have_a_name_and_a_value() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(assignment("A=b=c"), pair("A", "b=c"));
        assert_eq!(assignment("_a1="), pair("_a1", ""));
        for wrong in ["A", "=x", "1A=x", "a-b=x", "a b=x", ""] {
            assert!(assignment(wrong).is_err(), "{wrong}");
        }
    }
}
