use std::io::{self, Read, Write};
use std::time::Duration;

use azureal_agents::offline::{Persona, answer, line_of};
use azureal_core::agent::AgentOutput;

use crate::failure::{Failure, quoted};

/// The pace of somebody who speaks fast.
const BETWEEN_WORDS: Duration = Duration::from_millis(4);

/// Be the built-in agent: read a prompt from standard input, and answer as a stream of events
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who speaks
    #[arg(value_name = "PERSONA")]
    persona: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let persona = Persona::named(&args.persona)
        .ok_or_else(|| Failure::usage(format!("nobody here is called {}", quoted(&args.persona))))?;
    let mut frame = Vec::new();
    io::stdin().lock().read_to_end(&mut frame)?;
    let frame = String::from_utf8_lossy(&frame);
    let directory = std::env::current_dir().unwrap_or_default();
    let mut stdout = io::stdout().lock();
    for output in answer(persona, &directory.display().to_string(), &frame) {
        writeln!(stdout, "{}", line_of(&output))?;
        stdout.flush()?;
        if matches!(output, AgentOutput::Delta(_)) {
            std::thread::sleep(BETWEEN_WORDS);
        }
    }
    Ok(())
}
