use azureal_core::{Holder, SessionId, visible_line};
use azureal_engine::{Recovered, SpooledTurn};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Output, tell};
use azureal::Workspace;
use azureal::turns::describe_holder;

/// Show the turns that are running, of every azureal on this store
///
/// With `--json`, an array of `{"session","agent","model","pid","since","orphan","user","host"}`. An orphan is an agent
/// that continues in the background because its azureal is no longer running. The next azureal stores its turn after it
/// has ended. For a turn on another machine, `user` and `host` say who runs it and where, and `pid` is that of its
/// azureal there.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal ps
  azureal ps --json | jq -r '.[].session'")]
pub(crate) struct Args {}

/// A turn that is running.
struct Running<'a> {
    turn: &'a SpooledTurn,
    pid: Option<u32>,
    orphan: bool,
}

pub(crate) async fn run(
    _: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    let running: Vec<Running<'_>> = found.iter().filter_map(Running::of).collect();
    let is_here = |session: SessionId| running.iter().any(|here| here.turn.session_id() == Some(session));
    let mut others = place.store.held_leases().await?;
    others.retain(|(session, _)| !is_here(*session));
    if out.is_json() {
        let others = others.iter().map(|(session, holder)| json_describe_holder(*session, holder));
        return out.json(&running.iter().map(Running::json).chain(others).collect::<Vec<_>>());
    }
    if running.is_empty() && others.is_empty() {
        tell("no turn is running");
    }
    for running in &running {
        out.line(&running.line())?;
    }
    for (session, holder) in &others {
        out.line(&format!("{session} · elsewhere: {}", describe_holder(holder)))?;
    }
    Ok(())
}

fn json_describe_holder(session: SessionId, holder: &Holder) -> Value {
    json!({
        "session": session.to_string(),
        "agent": holder.agent,
        "model": null,
        "pid": holder.pid,
        "since": holder.since,
        "orphan": false,
        "user": holder.user,
        "host": holder.host,
    })
}

impl<'a> Running<'a> {
    fn of(found: &'a Recovered) -> Option<Self> {
        match found {
            Recovered::Running(turn, process) => {
                Some(Self { turn, pid: process.as_ref().map(|process| process.pid), orphan: false })
            }
            Recovered::Orphan(turn, process) => Some(Self { turn, pid: Some(process.pid), orphan: true }),
            _ => None,
        }
    }

    fn json(&self) -> Value {
        json!({
            "session": format!("S{}", self.turn.session),
            "agent": self.turn.agent,
            "model": self.turn.model,
            "pid": self.pid,
            "since": self.turn.started_at,
            "orphan": self.orphan,
            "user": null,
            "host": null,
        })
    }

    fn line(&self) -> String {
        let SpooledTurn { session, agent, model, started_at, .. } = self.turn;
        let model = model.as_deref().map(|model| format!("/{model}")).unwrap_or_default();
        let process = self.pid.map_or_else(|| "starting".to_owned(), |pid| format!("process {pid}"));
        let orphan = if self.orphan { " · its azureal has gone" } else { "" };
        let line = format!("S{session} · {agent}{model} · {process} · since {started_at}{orphan}");
        visible_line(&line).into_owned()
    }
}
