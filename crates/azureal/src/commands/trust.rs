use azureal_core::visible_line;
use serde::Serialize;
use serde_json::json;

use crate::config::trust::{self, Standing};
use crate::config::{Config, ConfigFile};
use crate::failure::Failure;
use crate::output::{Output, counted, shown};
use crate::project::Project;

/// Let the configuration files of this project take effect
///
/// `.azureal/azufig.toml`, `Cllmfile.yml` and `.cllm/Cllmfile.yml` at the top of a worktree come with the
/// repository, and can run commands. So nothing in them is in effect until you have seen it: this shows
/// all that they say, with the exact commands, and asks. Where nobody can be asked, because this is not a terminal,
/// nothing is trusted without `--yes`.
///
/// The answer is for these files with this content in this place. When one byte changes, or one more file appears,
/// `azureal run` asks again. It is kept in `~/.local/share/azureal/trust`, never in the project. Your own
/// files in your home, and commands that you type, need no trust.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal trust             show what the files say, and ask
  azureal trust --show      show whether they are trusted
  azureal trust --revoke    take it back")]
pub(crate) struct Args {
    /// Do not ask
    #[arg(short, long, conflicts_with_all = ["show", "revoke"])]
    yes: bool,
    /// Show which files there are and whether they are trusted as they are now
    #[arg(long, conflicts_with = "revoke")]
    show: bool,
    /// Take back all that was ever trusted in this worktree
    #[arg(long)]
    revoke: bool,
}

/// The shape of the answer. Fields may be added, never removed.
#[derive(Serialize)]
struct Line {
    state: &'static str,
    since: Option<String>,
    files: Vec<FileLine>,
}

#[derive(Serialize)]
struct FileLine {
    path: String,
    leads_to: Option<String>,
    blake3: String,
}

pub(crate) fn run(args: &Args, project: &Project, out: &mut Output) -> Result<(), Failure> {
    if args.revoke {
        return revoke(project, out);
    }
    let mut config = Config::load_to_show(project)?;
    if !args.show {
        if args.yes {
            approve(&mut config, out)?;
        } else {
            trust::require(&mut config).map_err(|failure| {
                failure.with_hint("on a terminal this asks; `--yes` trusts without asking")
            })?;
        }
    }
    report(&config, out)
}

/// Trusts without asking; what is trusted is shown all the same.
fn approve(config: &mut Config, out: &mut Output) -> Result<(), Failure> {
    if matches!(trust::standing(config), Standing::Changed | Standing::Untrusted) {
        if !out.is_json() {
            out.text(&trust::shown_whole(config))?;
        }
        trust::approve(config)?;
    }
    Ok(())
}

fn revoke(project: &Project, out: &mut Output) -> Result<(), Failure> {
    let removed = trust::revoke(project)?;
    if out.is_json() {
        return out.json(&json!({ "revoked": removed }));
    }
    out.line(&match removed {
        0 => "nothing was trusted here".to_owned(),
        _ => format!("took back {}", counted(removed as u64, "approval")),
    })
}

fn report(config: &Config, out: &mut Output) -> Result<(), Failure> {
    let standing = trust::standing(config);
    let (state, since) = match standing {
        Standing::NoFiles => ("nothing", None),
        Standing::Trusted { since } => ("trusted", Some(since.clone()).filter(|since| !since.is_empty())),
        Standing::Changed => ("changed", None),
        Standing::Untrusted => ("untrusted", None),
    };
    if out.is_json() {
        let files = config.project_files().map(file_line).collect();
        return out.json(&Line { state, since, files });
    }
    let since = since.map_or_else(String::new, |since| format!(" since {}", visible_line(&since)));
    let text = match standing {
        Standing::NoFiles => "there is nothing to trust: no configuration file of this project says anything",
        Standing::Trusted { .. } => "trusted",
        Standing::Changed => "changed since it was trusted, and not in effect",
        Standing::Untrusted => "not trusted, and not in effect",
    };
    for file in config.project_files() {
        out.line(&shown(file.path()))?;
    }
    out.line(&format!("{text}{since}"))
}

fn file_line(file: &ConfigFile) -> FileLine {
    FileLine {
        path: file.path().display().to_string(),
        leads_to: file.leads_to().map(|real| real.display().to_string()),
        blake3: file.hash().to_string(),
    }
}
