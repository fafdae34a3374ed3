//! How the agents of a workspace look things up in its sessions.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use azureal_core::SessionId;
use azureal_core::agent::RecallServer;
use azureal_engine::Recall;

use crate::workspace::Workspace;

/// Answers the messages of one connection until its input ends. The session is that of the turn.
pub type RecallService = fn(&Workspace, SessionId, &mut dyn BufRead, &mut dyn Write) -> io::Result<()>;

impl Workspace {
    /// Sets the function that answers agents about the sessions. Without it they have no recall.
    ///
    /// An agent starts its server itself: the front end's [own program](crate::Environment::with_own_program), with the arguments of `azureal mcp`. So a front end
    /// that calls this names the program `azureal` there, or answers the subcommand `mcp` as that does.
    pub fn set_recall_service(&mut self, service: RecallService) {
        self.recall_service = Some(service);
    }

    /// Returns how an agent of this workspace looks things up; `None` if the own program is not known, or does not answer agents.
    ///
    /// The server of a file opens the file, so it answers as long as the agent runs, also when this process has ended. Arguments are visible to every user of the
    /// machine, and an agent is not told how to get into a server. So for a store on a server, this process answers.
    pub(crate) fn recall(&self) -> Option<Recall> {
        // Another front end, started as a server, would take the messages for prompts.
        let service = self.recall_service.filter(|_| !self.is_ephemeral())?;
        let program = self.environment().own_program().ok()?.to_str()?.to_owned();
        if let Some((file, _)) = self.file() {
            let file = std::path::absolute(file).ok()?;
            let directory = self.project.directory().to_str()?;
            let args = ["mcp", "-C", directory, "--store", file.to_str()?].map(str::to_owned);
            return Some(Recall { server: RecallServer { program, args: args.into() }, answers: None });
        }
        let workspace = self.shared();
        let server = RecallServer { program, args: vec!["mcp".to_owned()] };
        let answers = move |session, input: &mut dyn BufRead, output: &mut dyn Write| {
            service(&workspace, session, input, output)
        };
        Some(Recall { server, answers: Some(Arc::new(answers)) })
    }
}
