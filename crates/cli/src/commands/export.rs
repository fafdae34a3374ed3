use std::ffi::OsString;
use std::path::{Path, PathBuf};

use azureal::Workspace;
use azureal::agents::own_settings_of;
use azureal::error::shown;
use azureal::exchange::{
    ExistingFile, ExportFormat, ExportOptions, Exported, export, export_to_file, native_id, native_sources,
};
use azureal::json::SESSION_SCHEMA;
use azureal::sessions::{called, resolve_to_read};
use azureal_agents::native::{self, NativeConversation, Placement};
use azureal_core::{EventSource, SessionId, SessionRecord, normal_timestamp, visible_line};
use azureal_engine::{FullHistory, Recovered};
use clap::ValueEnum;
use serde_json::json;

use super::SessionToRead;
use super::show::warn_of_gaps;
use crate::damage::warn_of_damaged_events;
use crate::failure::Failure;
use crate::output::{Output, counted, tell, warn};

/// Write a session in the format of another program
///
/// To standard output, or to a file that only you can read. `json` has everything that is stored and can be imported
/// again; the other formats have what they can express. `html` is one page that needs no network and no other file. Stored results of tools are short: `--full` writes them whole.
///
/// `claude`, `codex`, `gemini`, `qwen` and `opencode` write a session of that agent's own program, whichever agents the session was with. The
/// program resumes it, with the turns, tool calls and results as its own; thinking is left out. With `-o`, azureal says where the
/// file belongs and which command resumes it. `azureal open S3 -a claude` does all of this in one step.
///
/// Keys, tokens and passwords are replaced by masks such as `[redacted: github token]`, as far as they can be recognised,
/// unless `--raw` is given. The session itself is not changed. `[redact] patterns` in your own azufig.toml adds patterns.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal export S3 --format markdown
  azureal export S3 --format html -o S3.html
  azureal export S3 --format anthropic | jq '.messages | length'
  azureal export S3 --raw -o S3.json
  azureal export S3 --full --format markdown -o S3.md
  azureal export S3 --format claude -o S3.jsonl
  azureal export S3 --format cllm -o ~/.cllm/conversations/fix-login.json")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionToRead,
    /// The format to write
    #[arg(short, long, value_enum, default_value = "json")]
    format: FormatArgument,
    /// Write to this file, which must not exist yet
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write results and inputs of tool calls whole, from the output of the turns
    #[arg(long)]
    full: bool,
    /// Mask nothing: keys, tokens and passwords are in the export as they are in the session
    #[arg(long)]
    raw: bool,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,
    /// Print the JSON Schema of the format `json`
    #[arg(long, exclusive = true)]
    schema: bool,
}

/// The value of `--format`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatArgument {
    /// All of it, exactly; `azureal import` reads it back
    Json,
    /// For people, on a code host or in an editor
    Markdown,
    /// For people, in a browser: one page that needs no network and no other file
    Html,
    /// Messages for OpenAI's chat completions: `{"messages":[…]}`
    #[value(name = "openai")]
    OpenAi,
    /// Messages for Anthropic's API: `{"system":…,"messages":[…]}`
    Anthropic,
    /// A conversation of cllm; tool calls become text
    Cllm,
    /// A list of messages as axio writes them
    Axio,
    /// A transcript of Claude Code, for `claude --resume`
    Claude,
    /// A rollout of Codex, for `codex resume`
    Codex,
    /// A session of Gemini CLI, for `gemini -r`
    Gemini,
    /// A session of Qwen Code, for `qwen -r`
    Qwen,
    /// An export of opencode, for `opencode import`
    Opencode,
}

impl From<FormatArgument> for ExportFormat {
    fn from(argument: FormatArgument) -> Self {
        match argument {
            FormatArgument::Json => Self::Json,
            FormatArgument::Markdown => Self::Markdown,
            FormatArgument::Html => Self::Html,
            FormatArgument::OpenAi => Self::OpenAi,
            FormatArgument::Anthropic => Self::Anthropic,
            FormatArgument::Cllm => Self::Cllm,
            FormatArgument::Axio => Self::Axio,
            FormatArgument::Claude => Self::Native("claude"),
            FormatArgument::Codex => Self::Native("codex"),
            FormatArgument::Gemini => Self::Native("gemini"),
            FormatArgument::Qwen => Self::Native("qwen"),
            FormatArgument::Opencode => Self::Native("opencode"),
        }
    }
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    if args.schema {
        return out.text(SESSION_SCHEMA);
    }
    let record = resolve_to_read(place, found, args.session.session.as_deref()).await?;
    let format = args.format.into();
    let directory = place.directory_of(&record);
    let history = if args.full { Some(place.full_history(record.id).await?) } else { None };
    let settings = match format {
        ExportFormat::Native(agent) => own_settings_of(agent, place.environment()),
        _ => None,
    };
    let options = ExportOptions {
        redactor: if args.raw { None } else { Some(place.redactor()?) },
        events: history.as_ref().map(|history| history as &dyn EventSource),
        directory: Some(&directory),
        settings: settings.as_deref(),
        ..ExportOptions::new(format)
    };
    let Some(path) = args.output.as_deref().filter(|path| *path != Path::new("-")) else {
        let document = match format {
            ExportFormat::Markdown => Some("markdown"),
            ExportFormat::Html => Some("html"),
            _ => None,
        };
        if let Some(name) = document.filter(|_| out.is_json()) {
            return Err(Failure::usage(format!(
                "`--json` and `--format {name}` are two formats for one output"
            ))
            .with_hint("write the document to a file with `-o`, or leave out `--json`"));
        }
        let exported = export(&*place.store, &record, options, out).await?;
        warn_of(&exported, record.id);
        warn_of_missing(history.as_ref()).await;
        return Ok(());
    };
    if place.owns(path) {
        let message = format!("{} belongs to the store that would be exported from", shown(path));
        return Err(Failure::refused("same_store", message).with_hint("name another file with `-o`"));
    }
    let existing = if args.force { ExistingFile::Replace } else { ExistingFile::Keep };
    let exported = export_to_file(&*place.store, &record, options, path, existing).await?;
    warn_of(&exported, record.id);
    warn_of_missing(history.as_ref()).await;
    if out.is_json() {
        out.json(&json!({"id": record.id.to_string(), "file": path.to_string_lossy()}))?;
    } else {
        out.line(&format!("{} is in {}", called(&record), shown(path)))?;
    }
    if let ExportFormat::Native(agent) = format {
        tell_how_to_resume(agent, &record, &directory, path, place);
    }
    Ok(())
}

/// Says where the file of a session belongs, and which command resumes it.
fn tell_how_to_resume(agent: &str, record: &SessionRecord, directory: &Path, file: &Path, place: &Workspace) {
    let source = native_sources().iter().find(|source| source.agent() == agent);
    let Some((writer, source)) = native::writer(agent).zip(source) else { return };
    let variable = |name: &str| place.environment().value(name).map(ToOwned::to_owned);
    let homes = source.homes(&variable);
    let Some(home) = homes.iter().find(|home| home.exists()).or(homes.first()) else { return };
    let id = native_id(writer, record);
    let started = normal_timestamp(&record.created_at).parse().unwrap_or_default();
    let session = NativeConversation {
        id: &id,
        cwd: directory,
        started,
        updated: started,
        title: None,
        settings: None,
        messages: &[],
    };
    let command = |arguments: Vec<OsString>| {
        let arguments = arguments.iter().map(|argument| argument.to_string_lossy());
        format!("`{}`", arguments.fold(agent.to_owned(), |command, argument| command + " " + &argument))
    };
    let resume = command(writer.resume(home, &id));
    let first = match writer.placement(home, &session) {
        Ok(Placement::File(target)) => {
            let missing = writer.companions(&target, &session).into_iter().filter(|(path, _)| !path.exists());
            let others = missing.map(|(path, content)| {
                format!(", and write `{}` into {}", String::from_utf8_lossy(&content), shown(&path))
            });
            format!("copy it to {}{}", shown(&target), others.collect::<String>())
        }
        Ok(Placement::Import(mut import)) => {
            import.push(file.into());
            format!("run {} there", command(import))
        }
        Err(error) => return warn(&format!("{} has no place for it: {error}", source.program())),
    };
    let how = format!("to resume it in {}: {first}, then run {resume} there", shown(directory));
    tell(&visible_line(&how));
    tell(&format!("`azureal open {} -a {agent}` does this in one step", record.id));
}

/// Warns of events that are still short.
async fn warn_of_missing(history: Option<&FullHistory>) {
    if let Some(history) = history {
        warn_of_gaps(&history.gaps().await);
    }
}

/// Warns that the export differs from the session.
fn warn_of(exported: &Exported, id: SessionId) {
    warn_of_damaged_events(&exported.damaged, id);
    if exported.masked > 0 {
        warn(&format!(
            "secrets are masked in {} of {id}; `--raw` exports them as they are",
            counted(exported.masked, "event")
        ));
    }
}
