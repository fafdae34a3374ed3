//! The questions of agents.

use azureal_core::agent::AgentOutput;
use azureal_core::bridge::{OptionKind, Question};
use azureal_engine::Control;

use crate::error::Error;

/// Takes the questions out of an output, and returns the open one as the control channel has it: the output is a file that an agent may be
/// able to write to.
pub(super) fn open_question(outputs: &mut Vec<AgentOutput>, control: Option<&Control>) -> Option<Question> {
    let mut asked = None;
    outputs.retain(|output| match output {
        AgentOutput::Question(question) => {
            asked = Some(question.id.clone());
            false
        }
        _ => true,
    });
    let asked = asked?;
    let open = control?.questions().ok()?;
    open.into_iter().map(|open| open.question).find(|question| question.id == asked)
}

/// Answers a question. Without an option it is refused.
pub(super) fn answer(control: Option<&Control>, question: &str, option: Option<&str>) -> Result<(), Error> {
    let failed = |why: String| Error::new("not_answered", why);
    let Some(control) = control else { return Err(failed("no agent waits for an answer".to_owned())) };
    let open = control.questions().map_err(|error| failed(error.to_string()).with_source(error))?;
    let Some(asked) = open.iter().find(|open| open.question.id == question) else {
        return Err(failed("the question is not open any more".to_owned()));
    };
    let options = &asked.question.options;
    let kind = |kind: OptionKind| options.iter().find(|option| option.kind == kind);
    let chosen = match option {
        Some(id) => options.iter().find(|option| option.id == id),
        None => kind(OptionKind::RejectOnce).or_else(|| kind(OptionKind::RejectAlways)),
    };
    let Some(chosen) = chosen else {
        return Err(failed("the question has no such answer".to_owned())
            .with_hint("cancel the turn to allow nothing"));
    };
    control.answer(asked, &chosen.id).map_err(|error| failed(error.to_string()).with_source(error))
}
