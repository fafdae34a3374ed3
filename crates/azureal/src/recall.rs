//! The server with which agents look things up in the sessions of a workspace.

use azureal_core::agent::RecallServer;

use crate::workspace::Workspace;

impl Workspace {
    /// Returns the server that an agent of this workspace starts, without the session of the turn; `None` if another process cannot
    /// open the store, or if the own program is not known.
    ///
    /// Arguments are visible to every user of the machine, and an agent is not told how to get into a server. So there is none for a store on a server.
    pub(crate) fn recall_server(&self) -> Option<RecallServer> {
        let program = self.environment().own_program().ok()?.to_str()?.to_owned();
        let (file, _) = self.file()?;
        let file = std::path::absolute(file).ok()?;
        let directory = self.project.directory().to_str()?;
        let args = ["mcp", "-C", directory, "--store", file.to_str()?].map(str::to_owned);
        Some(RecallServer { program, args: args.into() })
    }
}
