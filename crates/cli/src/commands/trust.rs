use serde::Serialize;
use serde_json::json;

use crate::confirm::{Answer, ask};
use crate::environment::{CllmConfig, environment};
use crate::failure::{Failure, quoted};
use crate::output::{Output, counted};
use crate::times::Clock;
use crate::trust_question;
use azureal::Project;
use azureal::config::owner::{Foreign, Owners};
use azureal::config::trust::{self, Standing};
use azureal::config::{Config, ConfigFile};
use azureal::error::shown;

/// Let the configuration files of this project take effect
///
/// `.azureal/azufig.toml`, `Cllmfile.yml` and `.cllm/Cllmfile.yml` at the top of a worktree come with the
/// repository, and can run commands. So they have no effect until you trust them: this shows every setting in them, with
/// the exact commands, and asks. Without a terminal, files are trusted only with `--yes`.
///
/// The answer is for these files with this content in this folder. When one byte changes, or one more file appears,
/// `azureal run` asks again. The answer is stored in `~/.local/share/azureal/trust`, never in the project. Your own
/// files in your home, and commands that you type, need no trust.
///
/// A project that belongs to another user is not used at all: this user could read your history there, and decide which
/// folder agents work in. `--owner` allows the folder of such a project. `safe.directory` in your own git configuration
/// does the same, and so does `sudo` for files of the user who called it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal trust             show what the files say, and ask
  azureal trust --show      show whether they are trusted
  azureal trust --revoke    take it back
  azureal trust --owner     use this project although another user owns it")]
pub(crate) struct Args {
    /// Do not ask
    #[arg(short, long, conflicts_with_all = ["show", "revoke"])]
    yes: bool,
    /// Show the files, and whether their current content is trusted
    #[arg(long, conflicts_with = "revoke")]
    show: bool,
    /// Revoke all trust in this worktree
    #[arg(long)]
    revoke: bool,
    /// Trust the folder of a project that belongs to another user, instead of its files
    #[arg(long)]
    owner: bool,
    #[command(flatten)]
    cllm: CllmConfig,
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
    let owners = Owners::of(&environment());
    if args.owner {
        return trust_owner(args, &owners, project, out);
    }
    if args.revoke {
        return revoke(project, out);
    }
    owners.check(project)?;
    let mut config = Config::load_to_show(project, &args.cllm.environment())?;
    if !args.show {
        if args.yes {
            approve(&mut config, out)?;
        } else {
            trust_question::require(&mut config).map_err(|failure| match failure.is_declined() {
                true => failure,
                false => failure.with_hint("on a terminal this asks; `--yes` trusts without asking"),
            })?;
        }
    }
    report(&config, out)
}

/// Allows the folders of a project that belong to another user.
fn trust_owner(args: &Args, owners: &Owners, project: &Project, out: &mut Output) -> Result<(), Failure> {
    if args.revoke {
        return report_revoked(owners.revoke(project)?, out);
    }
    let mut foreign = owners.foreign(project);
    if !args.show {
        for folder in foreign.iter_mut().filter(|folder| !folder.is_allowed) {
            let question = format!(
                "{folder}, who may read all that you store there.\nUse {} all the same? [y/N] ",
                quoted(shown(&folder.folder))
            );
            let answer = if args.yes { Answer::Yes } else { ask(&question) };
            if answer != Answer::Yes {
                let refused = Failure::refused("owner", folder.to_string());
                return Err(match answer {
                    Answer::No => refused.declined(),
                    _ => refused.with_hint(
                        "on a terminal this asks; `azureal trust --owner --yes` allows it without asking",
                    ),
                });
            }
            owners.approve(folder)?;
            folder.is_allowed = true;
        }
    }
    if out.is_json() {
        let folders: Vec<_> = foreign.iter().map(owner_line).collect();
        return out.json(&json!({ "folders": folders }));
    }
    if foreign.is_empty() {
        return out.line("this project is your own");
    }
    for folder in &foreign {
        let state = if folder.is_allowed { "trusted" } else { "not trusted, and not used" };
        out.line(&format!("{} (uid {}): {state}", shown(&folder.folder), folder.uid))?;
    }
    Ok(())
}

fn owner_line(foreign: &Foreign) -> serde_json::Value {
    json!({ "path": foreign.folder.display().to_string(), "uid": foreign.uid, "trusted": foreign.is_allowed })
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
    report_revoked(trust::revoke(project, &environment())?, out)
}

fn report_revoked(removed: usize, out: &mut Output) -> Result<(), Failure> {
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
    let since = since.map_or_else(String::new, |since| format!(" since {}", Clock::read().local(&since)));
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
