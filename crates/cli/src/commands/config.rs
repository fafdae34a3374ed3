use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use azureal_core::{ContextCommand, Threshold, visible_line};
use azureal_store::sqlite::make_folder_of;
use serde::Serialize;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::environment::CllmConfig;
use crate::failure::Failure;
use crate::output::{Output, bytes_text, warn};
use crate::trust_question::note_ignored;
use azureal::config::{
    AZUFIG, Chosen, Config, ConfigFile, ConfiguredKeys, ConfiguredValue, KeepOriginals, STARTER, Variable,
    describe, permission_name, terms,
};
use azureal::error::shown;
use azureal::{Project, StoreLayout};

/// How much of a value is shown to people.
const SHOWN: usize = 60;

/// Show the configuration, and where each value comes from
///
/// Files, the nearest first, at the top of the worktree: `.azureal/azufig.toml`, then cllm's `Cllmfile.yml` and
/// `.cllm/Cllmfile.yml`; and of your own: `~/.config/azureal/azufig.toml`, `~/.cllm/Cllmfile.yml`. The
/// nearest file that sets a value takes precedence. Variables are merged by name. A list of context commands replaces
/// that of a farther file of the same kind; the list of `azufig.toml` comes before that of `Cllmfile.yml`. `--cllm-config review`,
/// or `AZUREAL_CLLM_CONFIG=review` in the environment, reads cllm's `review.Cllmfile.yml` in place of `Cllmfile.yml`.
///
/// The command line takes precedence over the environment variables `AZUREAL_AGENT`, `AZUREAL_MODEL`, `AZUREAL_PERMISSION` and
/// `AZUREAL_TIMEOUT`, and those over the files.
///
/// Keys of `azufig.toml`: `agent`, `model`, `default_system_message`, `[turn]` with `permission`, `timeout` and `output_limit_mib`,
/// `[claude]` with `cache`, `[compaction]` with `threshold_characters` or `threshold_tokens`, `[changes]` with `enabled` and `max_size`, `[redact]` with `patterns` (only in your own file), `[variables]`, and `[[context_commands]]` with `name`, `command`, `on_failure`,
/// `timeout` and `dynamic`. Of a `Cllmfile.yml`, `default_system_message`, `variables` and `context_commands` are taken.
///
/// Files of the project take effect once they are trusted: see `azureal trust`. The only `permission` that they can set is
/// `read`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal config
  azureal config --init     begin with a file that explains itself
  azureal config --json | jq -r '.context_commands[].command'")]
pub(crate) struct Args {
    /// Write a `.azureal/azufig.toml` with every key explained; an existing file is not changed
    #[arg(long)]
    init: bool,
    #[command(flatten)]
    cllm: CllmConfig,
}

pub(crate) fn run(args: &Args, project: &Project, out: &mut Output) -> Result<(), Failure> {
    if args.init {
        return init(&project.directory().join(AZUFIG), out);
    }
    let config = Config::load_to_show(project, &args.cllm.environment())?;
    let layout = StoreLayout::of(&project.store_path());
    let report = Report::of(&config, &layout);
    if out.is_json() {
        out.json(&report)?;
    } else {
        print(&config, &report, out)?;
        if !report.cllm_configs.is_empty() {
            let names: Vec<String> =
                report.cllm_configs.iter().map(|name| visible_line(name).into_owned()).collect();
            let names = names.join(", ");
            out.line(&format!("\nNamed configurations of cllm: {names}. `--cllm-config NAME` uses one."))?;
        }
        if let Err(why) = &layout.second_name {
            out.line(&format!("\nThe store has no second name in a git directory: {why}"))?;
        }
    }
    out.flush()?;
    note_ignored(&config);
    // Only tried: nothing runs here.
    if let Err(failure) = config.context_commands(&[]) {
        warn(&format!("no session could begin like this: {}", failure.message()));
    }
    Ok(())
}

fn init(path: &Path, out: &mut Output) -> Result<(), Failure> {
    make_folder_of(path)?;
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    made.and_then(|mut file| file.write_all(STARTER.as_bytes())).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::new("exists", format!("{} is there already; it was not changed", path.display()))
                .with_hint("`azureal config` shows what is in effect")
        }
        _ => Failure::file(path, &error),
    })?;
    if out.is_json() {
        return out.json(&json!({ "path": path.display().to_string() }));
    }
    out.line(&format!("wrote {}; after changing it, `azureal trust` puts it into effect", shown(path)))
}

/// The shape of what is in effect. Fields may be added, never removed.
#[derive(Serialize)]
struct Report {
    agent: Setting,
    model: Setting,
    permission: Setting,
    /// In seconds.
    timeout: Setting,
    default_system_message: Setting,
    compaction_threshold: Setting,
    output_limit_mib: Setting,
    claude_cache: Setting,
    /// `forever`, `off`, or the number of days.
    keep_originals: Setting,
    share_originals: Setting,
    record_changes: Setting,
    /// In bytes.
    changes_max_size: Setting,
    recall: Setting,
    #[serde(skip_serializing_if = "Option::is_none")]
    redact_patterns: Option<Setting>,
    ui: UiLine,
    keys: Vec<KeysLine>,
    variables: Vec<VariableLine>,
    context_commands: Vec<CommandLine>,
    files: Vec<FileLine>,
    /// The named configurations of cllm.
    cllm_configs: Vec<String>,
    store: StoreLine,
}

/// The settings of the terminal interface.
#[derive(Serialize)]
struct UiLine {
    theme: Setting,
    motion: Setting,
    ascii: Setting,
    mouse: Setting,
    auto_switch: Setting,
}

/// The keys of an action.
#[derive(Serialize)]
struct KeysLine {
    action: String,
    keys: Vec<String>,
    /// The file and line.
    place: String,
}

/// The files and folders of the project's own store.
#[derive(Serialize)]
struct StoreLine {
    file: String,
    /// Nothing if it cannot have one.
    second_name: Option<String>,
    spools: String,
    originals: String,
}

/// A value and where it comes from.
#[derive(Serialize)]
struct Setting {
    value: Value,
    #[serde(flatten)]
    source: Source,
}

#[derive(Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
enum Source {
    Default,
    Environment { variable: String },
    File { path: String, line: usize },
}

#[derive(Serialize)]
struct VariableLine {
    name: String,
    /// Nothing for one that must be given, nor for what comes from the environment and may be a secret.
    value: Value,
    required: bool,
    #[serde(flatten)]
    source: Source,
}

#[derive(Serialize)]
struct CommandLine {
    name: String,
    /// As it is written: what its variables stand for may be a secret.
    command: String,
    on_failure: String,
    timeout: f64,
    dynamic: bool,
    #[serde(flatten)]
    source: Source,
}

#[derive(Serialize)]
struct FileLine {
    path: String,
    leads_to: Option<String>,
    of_project: bool,
    in_effect: bool,
}

impl Source {
    fn of<T>(found: &ConfiguredValue<'_, T>) -> Self {
        Self::File { path: found.file.path().display().to_string(), line: found.line }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Environment { variable } => write!(f, "environment, {variable}"),
            Self::File { path, line } => write!(f, "{}:{line}", visible_line(path)),
        }
    }
}

impl Setting {
    fn chosen<T>(chosen: Option<Chosen<'_, T>>, value: impl Fn(&T) -> Value) -> Self {
        match chosen {
            Some(Chosen::Environment(found, variable)) => {
                Self { value: value(found), source: Source::Environment { variable: variable.to_owned() } }
            }
            Some(Chosen::File(found)) => Self::of(Some(found), value),
            None => Self { value: Value::Null, source: Source::Default },
        }
    }

    fn of<T>(found: Option<ConfiguredValue<'_, T>>, value: impl Fn(&T) -> Value) -> Self {
        match found {
            Some(found) => Self { value: value(found.value), source: Source::of(&found) },
            None => Self { value: Value::Null, source: Source::Default },
        }
    }
}

fn threshold_value(threshold: &Threshold) -> Value {
    match threshold {
        Threshold::Chars(count) => json!({ "characters": count }),
        Threshold::Tokens(count) => json!({ "tokens": count }),
    }
}

fn variable_value(variable: &Variable) -> Value {
    match variable {
        Variable::Required => Value::Null,
        Variable::Switch(is_on) => json!(is_on),
        Variable::Integer(number) => json!(number),
        Variable::Fraction(number) => json!(number),
        Variable::Text(text) => json!(text),
    }
}

impl Report {
    fn of(config: &Config, layout: &StoreLayout) -> Self {
        let text = |path: &Path| path.display().to_string();
        Self {
            store: StoreLine {
                file: text(&layout.file),
                second_name: layout.second_name.as_deref().ok().map(text),
                spools: text(&layout.folders.spools),
                originals: text(&layout.folders.originals),
            },
            agent: Setting::chosen(config.find_agent(), |agent| json!(agent)),
            model: Setting::chosen(config.find_model(), |model| json!(model)),
            permission: Setting::chosen(config.find_permission(), |permission| {
                json!(permission_name(*permission))
            }),
            timeout: Setting::chosen(config.find_timeout(), |timeout| json!(timeout.as_secs_f64())),
            default_system_message: Setting::of(config.find_default_system_message(), |text| json!(text)),
            compaction_threshold: Setting {
                value: threshold_value(&config.compaction_threshold()),
                ..Setting::of(config.find_threshold(), threshold_value)
            },
            output_limit_mib: Setting {
                value: json!(config.output_limit().mib()),
                ..Setting::of(config.find_output_limit(), |limit| json!(limit.mib()))
            },
            claude_cache: Setting {
                value: json!(config.claude_cache().name()),
                ..Setting::of(config.find_claude_cache(), |caching| json!(caching.name()))
            },
            keep_originals: Setting {
                value: keep_value(&config.keep_originals()),
                ..Setting::of(config.find_keep_originals(), keep_value)
            },
            share_originals: Setting {
                value: json!(config.find_share_originals().is_some_and(|found| *found.value)),
                ..Setting::of(config.find_share_originals(), |share| json!(share))
            },
            record_changes: Setting {
                value: json!(config.records_changes()),
                ..Setting::of(config.find_record_changes(), |records| json!(records))
            },
            changes_max_size: Setting {
                value: json!(config.changes_size()),
                ..Setting::of(config.find_changes_size(), |size| json!(size))
            },
            recall: Setting {
                value: json!(config.recall()),
                ..Setting::of(config.find_recall(), |recall| json!(recall))
            },
            redact_patterns: config
                .find_redact_patterns()
                .map(|found| Setting::of(Some(found), |patterns| json!(patterns))),
            ui: UiLine::of(config),
            keys: config
                .keys()
                .into_iter()
                .map(|ConfiguredKeys { action, keys, place }| KeysLine { action, keys, place })
                .collect(),
            variables: config
                .find_variables()
                .into_iter()
                .map(|(name, found)| {
                    let in_environment = config.is_in_environment(name);
                    let required = *found.value == Variable::Required;
                    VariableLine {
                        name: name.to_owned(),
                        value: if in_environment { Value::Null } else { variable_value(found.value) },
                        required,
                        source: if in_environment {
                            Source::Environment { variable: name.to_owned() }
                        } else {
                            Source::of(&found)
                        },
                    }
                })
                .collect(),
            context_commands: config.find_context_commands().iter().map(command_line).collect(),
            files: config.files().iter().map(|file| file_line(config, file)).collect(),
            cllm_configs: config.cllm_names().into_iter().collect(),
        }
    }
}

impl UiLine {
    fn of(config: &Config) -> Self {
        let ui = config.ui();
        let switch = |found: Option<ConfiguredValue<'_, bool>>, value: bool| Setting {
            value: json!(value),
            ..Setting::of(found, |value| json!(value))
        };
        Self {
            theme: Setting {
                value: json!(ui.theme.name()),
                ..Setting::of(config.find_theme(), |theme| json!(theme.name()))
            },
            motion: switch(config.find_motion(), ui.motion),
            ascii: switch(config.find_ascii(), ui.ascii),
            mouse: switch(config.find_mouse(), ui.mouse),
            auto_switch: switch(config.find_auto_switch(), ui.auto_switch),
        }
    }

    /// Returns those that a file has.
    fn rows(&self) -> Vec<Row> {
        let UiLine { theme, motion, ascii, mouse, auto_switch } = self;
        [
            ("theme", theme),
            ("motion", motion),
            ("ascii", ascii),
            ("mouse", mouse),
            ("auto_switch", auto_switch),
        ]
        .into_iter()
        .filter(|(_, setting)| !matches!(setting.source, Source::Default))
        .map(|(name, setting)| {
            let value = setting.value.as_str().map_or_else(|| setting.value.to_string(), str::to_owned);
            Row::new(&format!("ui {name}"), &value, &setting.source)
        })
        .collect()
    }
}

fn keep_value(keep: &KeepOriginals) -> Value {
    match keep {
        KeepOriginals::Days(days) => json!(days),
        KeepOriginals::Forever | KeepOriginals::Off => json!(keep.to_string()),
    }
}

fn command_line(found: &ConfiguredValue<'_, ContextCommand>) -> CommandLine {
    let ContextCommand { name, command, template: _, on_failure, timeout, dynamic } = found.value;
    CommandLine {
        name: name.clone(),
        command: command.clone(),
        on_failure: format!("{on_failure:?}").to_lowercase(),
        timeout: timeout.as_secs_f64(),
        dynamic: *dynamic,
        source: Source::of(found),
    }
}

fn file_line(config: &Config, file: &ConfigFile) -> FileLine {
    FileLine {
        path: file.path().display().to_string(),
        leads_to: file.leads_to().map(|real| real.display().to_string()),
        of_project: file.is_of_project(),
        in_effect: config.counts(file),
    }
}

fn print(config: &Config, report: &Report, out: &mut Output) -> Result<(), Failure> {
    let text = |setting: &Setting, none: &str| setting.value.as_str().unwrap_or(none).to_owned();
    let timeout = match report.timeout.value.as_f64() {
        Some(seconds) => format!("{seconds} s"),
        None => "none".to_owned(),
    };
    let mut rows = vec![
        Row::new("agent", &text(&report.agent, "the first that is installed"), &report.agent.source),
        Row::new("model", &text(&report.model, "the agent's own"), &report.model.source),
        Row::new("permission", &text(&report.permission, "the agent's own"), &report.permission.source),
        Row::new("timeout", &timeout, &report.timeout.source),
        Row::new(
            "default_system_message",
            &text(&report.default_system_message, "none"),
            &report.default_system_message.source,
        ),
        Row::new(
            "compaction threshold",
            &config.compaction_threshold().to_string(),
            &report.compaction_threshold.source,
        ),
    ];
    if let Some(found) = config.find_output_limit() {
        let value = format!("{} MiB", found.value.mib());
        rows.push(Row::new("output limit", &value, &report.output_limit_mib.source));
    }
    if let Some(found) = config.find_keep_originals() {
        rows.push(Row::new("keep originals", &found.value.to_string(), &report.keep_originals.source));
    }
    if let Some(found) = config.find_share_originals() {
        let value = if *found.value { "yes" } else { "no" };
        rows.push(Row::new("share originals", value, &report.share_originals.source));
    }
    if let Some(found) = config.find_record_changes() {
        let value = if *found.value { "yes" } else { "no" };
        rows.push(Row::new("record changes", value, &report.record_changes.source));
    }
    if let Some(found) = config.find_changes_size() {
        rows.push(Row::new("size of changes", &bytes_text(*found.value), &report.changes_max_size.source));
    }
    if let Some(found) = config.find_recall() {
        let value = if *found.value { "yes" } else { "no" };
        rows.push(Row::new("recall", value, &report.recall.source));
    }
    if let Some(found) = config.find_claude_cache() {
        rows.push(Row::new("claude cache", found.value.name(), &report.claude_cache.source));
    }
    if let (Some(found), Some(setting)) = (config.find_redact_patterns(), &report.redact_patterns) {
        rows.push(Row::new("redact patterns", &found.value.join(", "), &setting.source));
    }
    rows.extend(report.ui.rows());
    for line in &report.keys {
        let value = if line.keys.is_empty() { "none".to_owned() } else { line.keys.join(", ") };
        rows.push(Row::new(&format!("key {}", line.action), &value, &visible_line(&line.place)));
    }
    for (line, (name, found)) in report.variables.iter().zip(config.find_variables()) {
        let value = match line.source {
            Source::Environment { .. } => format!("${name}"),
            Source::Default | Source::File { .. } => found.value.to_string(),
        };
        rows.push(Row::new(&format!("variable {name}"), &value, &line.source));
    }
    for (line, found) in report.context_commands.iter().zip(config.find_context_commands()) {
        let source = format!("{}, {}", line.source, terms(found.value));
        rows.push(Row::new(&format!("context command {}", line.name), &line.command, &source));
    }
    let width =
        |cell: fn(&Row) -> &String| rows.iter().map(|row| cell(row).width()).max().unwrap_or_default();
    let (names, values) = (width(|row| &row.name), width(|row| &row.value));
    for Row { name, value, source } in &rows {
        let (name, value) = (padded(name, names), padded(value, values));
        out.line(&format!("{name}  {value}  {}", out.paint().quiet(source)))?;
    }
    let ignored: Vec<&ConfigFile> = config.project_files().filter(|file| !config.counts(file)).collect();
    if !ignored.is_empty() {
        out.line("\nNot trusted, and not in effect:")?;
        for file in ignored {
            out.text(&describe(file))?;
        }
    }
    Ok(())
}

/// A line for people.
struct Row {
    name: String,
    value: String,
    source: String,
}

impl Row {
    fn new(name: &str, value: &str, source: &impl Display) -> Self {
        Self { name: short(name), value: short(value), source: source.to_string() }
    }
}

/// Returns the beginning of a text, on one line.
fn short(text: &str) -> String {
    let line = visible_line(text.trim_end());
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.into_owned(),
    }
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}
