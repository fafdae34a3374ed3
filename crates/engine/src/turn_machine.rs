//! A turn as a machine: inputs in, effects out as data.
//!
//! Everything that can happen to the turns of one session in one process is a pair of state and input here: a prompt
//! while an agent runs, a cancel while it starts, an agent that dies. The machine does not wait, spawn or store; the
//! driver performs the effects and feeds back their results.
//!
//! The agent's output is no input: it goes to the spool, and watchers read it there at their own pace. So no watcher
//! can slow a turn down, and no output is lost.

use azureal_core::ContextFrame;
use azureal_core::event::Outcome;

/// The message to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The user's prompt.
    Prompt(String),
    /// The request to continue: the agent was stopped to compact the session.
    GoOn,
}

/// The state of a session's turns.
///
/// Prompts that came while a turn was running wait in `staged`, in their order: none is lost to a later one.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum TurnMachine {
    /// No turn is running.
    #[default]
    Idle,
    /// The context of what is sent is being gathered.
    Gathering {
        /// The message.
        sent: Sent,
        /// The prompts after it.
        staged: Vec<String>,
        /// The reason to end it before it has begun.
        stop: Option<Outcome>,
    },
    /// The agent's program is being started.
    Starting {
        /// The prompts after it.
        staged: Vec<String>,
        /// The reason to end it as soon as it runs.
        stop: Option<Outcome>,
    },
    /// The agent answers.
    Running {
        /// The prompts after it.
        staged: Vec<String>,
    },
    /// The agent has been asked to stop.
    Stopping {
        /// The prompts after it.
        staged: Vec<String>,
        /// Whether it continues if there is no prompt after it.
        continues: bool,
    },
    /// The agent's output is being stored.
    Storing {
        /// The prompts after it.
        staged: Vec<String>,
        /// Whether it continues if there is no prompt after it.
        continues: bool,
    },
}

/// An input.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The person sends a prompt.
    Submit(String),
    /// The person cancels.
    Cancel,
    /// The turn has taken longer than it may.
    TimeUp,
    /// The agent has printed more than it may.
    OutputLimit,
    /// The session has become too long while the agent works.
    Full,
    /// The context is there.
    Gathered(ContextFrame),
    /// The context cannot be had, and so the turn not begin.
    NotGathered(String),
    /// The program runs.
    Started,
    /// The program does not run.
    NotStarted(String),
    /// The program has ended.
    Exited,
    /// The program has ended, because its first request was refused for a breakpoint of ours.
    Refused,
    /// The turn is in the store.
    Stored {
        /// Whether the agent had reached its end by itself.
        is_done: bool,
    },
    /// The turn is not in the store; what was printed is kept.
    NotStored(String),
}

impl Input {
    /// Returns its name, for the log: the rest may be text of the user.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Submit(_) => "submit",
            Self::Cancel => "cancel",
            Self::TimeUp => "time up",
            Self::OutputLimit => "output limit",
            Self::Full => "full",
            Self::Gathered(_) => "gathered",
            Self::NotGathered(_) => "not gathered",
            Self::Started => "started",
            Self::NotStarted(_) => "not started",
            Self::Exited => "exited",
            Self::Refused => "refused",
            Self::Stored { .. } => "stored",
            Self::NotStored(_) => "not stored",
        }
    }
}

/// An effect for the driver to perform.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Keep what is sent as it is, and gather its context.
    Gather(Sent),
    /// Start the agent.
    Start(ContextFrame),
    /// Start the agent again, without a breakpoint.
    StartAgain,
    /// Stop the commands that gather, or the agent's program, and say later that this is why.
    Stop(Outcome),
    /// Store what the agent printed, together with how it ended.
    Ingest,
    /// Store that this turn ended before the agent ran, and why.
    IngestUnstarted(Outcome, String),
    /// Tell the person.
    Tell(String),
    /// No effect: this input has no meaning in this state. Logged, never silent.
    Ignored(Input),
}

impl TurnMachine {
    /// Takes one input and returns the effects.
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        let (next, effects) = match (std::mem::take(self), input) {
            (Self::Idle, Input::Submit(prompt)) => Self::begin(Sent::Prompt(prompt), Vec::new()),

            // A new prompt replaces what runs: that is stopped and stored, then this one is sent.
            (Self::Gathering { sent, mut staged, stop }, Input::Submit(next)) => {
                staged.push(next);
                Self::stop_gathering(sent, staged, stop, Outcome::Cancelled)
            }
            (Self::Starting { mut staged, stop }, Input::Submit(next)) => {
                staged.push(next);
                (Self::Starting { staged, stop: stop.or(Some(Outcome::Cancelled)) }, vec![])
            }
            (Self::Running { mut staged }, Input::Submit(next)) => {
                staged.push(next);
                (Self::Stopping { staged, continues: false }, vec![Effect::Stop(Outcome::Cancelled)])
            }
            (Self::Stopping { mut staged, continues }, Input::Submit(next)) => {
                staged.push(next);
                (Self::Stopping { staged, continues }, vec![])
            }
            (Self::Storing { mut staged, continues }, Input::Submit(next)) => {
                staged.push(next);
                (Self::Storing { staged, continues }, vec![])
            }

            // What came is stored; then the session is compacted, and the agent continues by itself.
            (Self::Running { staged }, Input::Full) => {
                (Self::Stopping { staged, continues: true }, vec![Effect::Stop(Outcome::Interrupted)])
            }

            // A cancel also takes back what was waiting: the person wants quiet.
            (Self::Gathering { sent, stop, .. }, Input::Cancel) => {
                Self::stop_gathering(sent, Vec::new(), stop, Outcome::Cancelled)
            }
            (Self::Gathering { sent, stop, .. }, Input::TimeUp) => {
                Self::stop_gathering(sent, Vec::new(), stop, Outcome::Timeout)
            }
            (Self::Starting { stop, .. }, input @ (Input::Cancel | Input::TimeUp | Input::OutputLimit)) => {
                (Self::Starting { staged: Vec::new(), stop: stop.or(why(&input)) }, vec![])
            }
            (Self::Running { .. } | Self::Stopping { continues: true, .. }, Input::Cancel) => (
                Self::Stopping { staged: Vec::new(), continues: false },
                vec![Effect::Stop(Outcome::Cancelled)],
            ),
            (Self::Running { staged } | Self::Stopping { staged, continues: true }, Input::TimeUp) => {
                (Self::Stopping { staged, continues: false }, vec![Effect::Stop(Outcome::Timeout)])
            }
            (Self::Running { staged } | Self::Stopping { staged, continues: true }, Input::OutputLimit) => {
                (Self::Stopping { staged, continues: false }, vec![Effect::Stop(Outcome::Failed)])
            }
            (Self::Stopping { continues, .. }, Input::Cancel) => {
                (Self::Stopping { staged: Vec::new(), continues }, vec![])
            }
            (Self::Storing { .. }, Input::Cancel) => {
                (Self::Storing { staged: Vec::new(), continues: false }, vec![])
            }

            (Self::Gathering { staged, stop: None, .. }, Input::Gathered(frame)) => {
                (Self::Starting { staged, stop: None }, vec![Effect::Start(frame)])
            }
            (
                Self::Gathering { staged, stop: Some(stop), .. },
                Input::Gathered(_) | Input::NotGathered(_),
            ) => (Self::Storing { staged, continues: false }, vec![unstarted(stop)]),
            (Self::Starting { staged, stop: Some(stop) }, Input::NotStarted(_)) => {
                (Self::Storing { staged, continues: false }, vec![unstarted(stop)])
            }
            (Self::Gathering { staged, .. }, Input::NotGathered(why))
            | (Self::Starting { staged, .. }, Input::NotStarted(why)) => (
                Self::Storing { staged, continues: false },
                vec![Effect::IngestUnstarted(Outcome::Failed, why)],
            ),
            (Self::Starting { staged, stop: None }, Input::Started) => (Self::Running { staged }, vec![]),
            (Self::Starting { staged, stop: Some(stop) }, Input::Started) => {
                (Self::Stopping { staged, continues: false }, vec![Effect::Stop(stop)])
            }

            (Self::Running { staged }, Input::Exited) => {
                (Self::Storing { staged, continues: false }, vec![Effect::Ingest])
            }
            (Self::Running { staged }, Input::Refused) => {
                (Self::Starting { staged, stop: None }, vec![Effect::StartAgain])
            }
            (Self::Stopping { staged, continues }, Input::Exited | Input::Refused) => {
                (Self::Storing { staged, continues }, vec![Effect::Ingest])
            }
            // An agent that was done before it could be stopped has nothing to continue.
            (Self::Storing { staged, continues }, Input::Stored { is_done }) => {
                Self::after(staged, continues && !is_done)
            }
            (Self::Storing { staged, .. }, Input::NotStored(why)) => {
                // The next turn would get a history without this one, so staged prompts are not sent.
                let mut effects = vec![Effect::Tell(why)];
                effects.extend(staged.into_iter().map(|prompt| Effect::Tell(format!("not sent: {prompt}"))));
                (Self::Idle, effects)
            }

            (state, input) => (state, vec![Effect::Ignored(input)]),
        };
        *self = next;
        effects
    }

    /// Returns whether an agent's program may be running.
    pub fn is_active(&self) -> bool {
        !matches!(self, Self::Idle)
    }

    fn begin(sent: Sent, staged: Vec<String>) -> (Self, Vec<Effect>) {
        (Self::Gathering { sent: sent.clone(), staged, stop: None }, vec![Effect::Gather(sent)])
    }

    /// Stops the gathering, unless it was stopped before.
    fn stop_gathering(
        sent: Sent,
        staged: Vec<String>,
        stop: Option<Outcome>,
        why: Outcome,
    ) -> (Self, Vec<Effect>) {
        let effects = if stop.is_none() { vec![Effect::Stop(why)] } else { vec![] };
        (Self::Gathering { sent, staged, stop: stop.or(Some(why)) }, effects)
    }

    /// Continues with the waiting prompt, else with the suspended turn, if there is one.
    fn after(mut staged: Vec<String>, continues: bool) -> (Self, Vec<Effect>) {
        if !staged.is_empty() {
            let prompt = staged.remove(0);
            return Self::begin(Sent::Prompt(prompt), staged);
        }
        if continues { Self::begin(Sent::GoOn, staged) } else { (Self::Idle, vec![]) }
    }
}

fn unstarted(stop: Outcome) -> Effect {
    Effect::IngestUnstarted(stop, "stopped before the agent was started".to_owned())
}

fn why(input: &Input) -> Option<Outcome> {
    match input {
        Input::Cancel => Some(Outcome::Cancelled),
        Input::TimeUp => Some(Outcome::Timeout),
        Input::OutputLimit => Some(Outcome::Failed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds inputs and returns the effects of each.
    fn play(inputs: Vec<Input>) -> (TurnMachine, Vec<Vec<Effect>>) {
        let mut turn = TurnMachine::default();
        let effects = inputs.into_iter().map(|input| turn.step(input)).collect();
        (turn, effects)
    }

    fn submit(prompt: &str) -> Input {
        Input::Submit(prompt.to_owned())
    }

    fn prompt(text: &str) -> Sent {
        Sent::Prompt(text.to_owned())
    }

    fn frame(prompt: &str) -> ContextFrame {
        ContextFrame::new("", "", prompt)
    }

    #[test]
    fn a_turn_goes_its_way() {
        let (turn, effects) = play(vec![
            submit("a"),
            Input::Gathered(frame("a")),
            Input::Started,
            Input::Exited,
            Input::Stored { is_done: false },
        ]);
        assert_eq!(turn, TurnMachine::Idle);
        assert_eq!(
            effects,
            [
                vec![Effect::Gather(prompt("a"))],
                vec![Effect::Start(frame("a"))],
                vec![],
                vec![Effect::Ingest],
                vec![],
            ]
        );
    }

    #[test]
    fn a_prompt_while_an_agent_runs_stops_it_and_is_sent_once_that_is_stored() {
        let (turn, effects) = play(vec![
            submit("a"),
            Input::Gathered(frame("a")),
            Input::Started,
            submit("b"),
            submit("c"),
            Input::Exited,
            Input::Stored { is_done: false },
        ]);
        assert_eq!(effects[3], [Effect::Stop(Outcome::Cancelled)]);
        assert_eq!(effects[4], []);
        assert_eq!(effects[5], [Effect::Ingest]);
        assert_eq!(effects[6], [Effect::Gather(prompt("b"))]);
        assert_eq!(turn, TurnMachine::Gathering { sent: prompt("b"), staged: vec!["c".into()], stop: None });
    }

    #[test]
    fn an_agent_that_was_refused_is_started_again() {
        let begun = || vec![submit("a"), Input::Gathered(frame("a")), Input::Started];
        let (turn, effects) = play([begun(), vec![submit("b"), Input::Refused]].concat());
        assert_eq!(effects[4], [Effect::Ingest], "somebody stopped it meanwhile");
        assert!(matches!(turn, TurnMachine::Storing { .. }));
        let (turn, effects) = play([begun(), vec![Input::Refused, Input::Started, Input::Exited]].concat());
        assert_eq!(effects[3..], [vec![Effect::StartAgain], vec![], vec![Effect::Ingest]]);
        assert!(matches!(turn, TurnMachine::Storing { .. }));
        let (_, effects) = play([begun(), vec![Input::Refused, Input::Cancel, Input::Started]].concat());
        assert_eq!(effects[5], [Effect::Stop(Outcome::Cancelled)]);
    }

    #[test]
    fn a_cancel_before_the_agent_runs_is_kept_until_it_can_be_done() {
        let (_, effects) = play(vec![submit("a"), Input::Cancel, Input::Gathered(frame("a"))]);
        assert!(matches!(&effects[2][..], [Effect::IngestUnstarted(Outcome::Cancelled, _)]));
        let (turn, effects) =
            play(vec![submit("a"), Input::Gathered(frame("a")), Input::Cancel, Input::Started]);
        assert_eq!(effects[3], [Effect::Stop(Outcome::Cancelled)]);
        assert_eq!(turn, TurnMachine::Stopping { staged: vec![], continues: false });
    }

    #[test]
    fn what_is_being_gathered_is_stopped_once_and_no_failure() {
        let (turn, effects) =
            play(vec![submit("a"), submit("b"), Input::TimeUp, Input::NotGathered("stopped".into())]);
        assert_eq!(effects[1], [Effect::Stop(Outcome::Cancelled)]);
        assert_eq!(effects[2], []);
        assert!(matches!(&effects[3][..], [Effect::IngestUnstarted(Outcome::Cancelled, _)]));
        assert_eq!(
            turn,
            TurnMachine::Storing { staged: vec![], continues: false },
            "what took too long takes back what waits"
        );
        let (_, effects) = play(vec![submit("a"), Input::TimeUp, Input::Gathered(frame("a"))]);
        assert_eq!(effects[1], [Effect::Stop(Outcome::Timeout)]);
        assert!(matches!(&effects[2][..], [Effect::IngestUnstarted(Outcome::Timeout, _)]));
    }

    #[test]
    fn a_cancel_takes_back_what_waits() {
        let (turn, _) = play(vec![
            submit("a"),
            Input::Gathered(frame("a")),
            Input::Started,
            submit("b"),
            Input::Cancel,
            Input::Exited,
            Input::Stored { is_done: false },
        ]);
        assert_eq!(turn, TurnMachine::Idle);
    }

    #[test]
    fn time_up_stops_and_what_waits_is_sent() {
        let (turn, effects) = play(vec![
            submit("a"),
            Input::Gathered(frame("a")),
            Input::Started,
            Input::TimeUp,
            submit("b"),
            Input::Exited,
            Input::Stored { is_done: false },
        ]);
        assert_eq!(effects[3], [Effect::Stop(Outcome::Timeout)]);
        assert!(matches!(turn, TurnMachine::Gathering { sent, .. } if sent == prompt("b")));
    }

    #[test]
    fn an_agent_that_prints_too_much_is_stopped_and_what_waits_is_sent() {
        let (turn, effects) = play(vec![
            submit("a"),
            Input::Gathered(frame("a")),
            Input::Started,
            Input::OutputLimit,
            Input::OutputLimit,
            submit("b"),
            Input::Exited,
            Input::Stored { is_done: false },
        ]);
        assert_eq!(effects[3], [Effect::Stop(Outcome::Failed)]);
        assert_eq!(effects[4], [Effect::Ignored(Input::OutputLimit)]);
        assert!(matches!(turn, TurnMachine::Gathering { sent, .. } if sent == prompt("b")));
    }

    #[test]
    fn a_session_that_becomes_too_long_is_stored_and_goes_on_by_itself() {
        let until_full = [submit("a"), Input::Gathered(frame("a")), Input::Started, Input::Full];
        let go_on = |then: &[Input]| play([&until_full[..], then].concat());
        let (turn, effects) = go_on(&[Input::Exited, Input::Stored { is_done: false }]);
        assert_eq!(
            effects[3..],
            [
                vec![Effect::Stop(Outcome::Interrupted)],
                vec![Effect::Ingest],
                vec![Effect::Gather(Sent::GoOn)]
            ]
        );
        assert_eq!(turn, TurnMachine::Gathering { sent: Sent::GoOn, staged: vec![], stop: None });

        // Who had come to the end anyway does not continue.
        assert_eq!(go_on(&[Input::Exited, Input::Stored { is_done: true }]).0, TurnMachine::Idle);
        // The person's own words come first, and a cancel ends it.
        let (turn, _) = go_on(&[submit("b"), Input::Exited, Input::Stored { is_done: false }]);
        assert!(matches!(turn, TurnMachine::Gathering { sent, .. } if sent == prompt("b")));
        let (turn, effects) = go_on(&[Input::Cancel, Input::Exited, Input::Stored { is_done: false }]);
        assert_eq!((turn, &effects[4][..]), (TurnMachine::Idle, &[Effect::Stop(Outcome::Cancelled)][..]));
        assert_eq!(
            go_on(&[Input::Exited, Input::Cancel, Input::Stored { is_done: false }]).0,
            TurnMachine::Idle
        );
        assert_eq!(
            go_on(&[Input::TimeUp, Input::Exited, Input::Stored { is_done: false }]).0,
            TurnMachine::Idle
        );
        assert_eq!(go_on(&[Input::Exited, Input::NotStored("full".into())]).0, TurnMachine::Idle);
    }

    #[test]
    fn what_cannot_begin_is_stored_with_the_reason() {
        for input in [Input::NotGathered("why".into()), Input::NotStarted("why".into())] {
            let mut inputs = vec![submit("a")];
            if matches!(input, Input::NotStarted(_)) {
                inputs.push(Input::Gathered(frame("a")));
            }
            inputs.push(input);
            let (turn, effects) = play(inputs);
            assert_eq!(effects.last().unwrap()[..], [Effect::IngestUnstarted(Outcome::Failed, "why".into())]);
            assert_eq!(turn, TurnMachine::Storing { staged: vec![], continues: false });
        }
    }

    #[test]
    fn what_waits_is_not_sent_when_the_turn_before_is_not_stored() {
        let (turn, effects) = play(vec![
            submit("a"),
            Input::Gathered(frame("a")),
            Input::Started,
            submit("b"),
            Input::Exited,
            Input::NotStored("full".into()),
        ]);
        assert_eq!(turn, TurnMachine::Idle);
        assert_eq!(effects[5], [Effect::Tell("full".into()), Effect::Tell("not sent: b".into())]);
    }

    #[test]
    fn what_means_nothing_is_said_and_changes_nothing() {
        for input in
            [Input::Exited, Input::Cancel, Input::Stored { is_done: false }, Input::TimeUp, Input::Started]
        {
            let mut turn = TurnMachine::Idle;
            assert_eq!(turn.step(input.clone()), [Effect::Ignored(input)]);
            assert_eq!(turn, TurnMachine::Idle);
        }
    }

    /// Whatever happens in whatever order, a prompt that was sent is gathered, told as not sent, or taken back
    /// by a cancel; and a program that was started is ingested.
    #[test]
    fn no_prompt_and_no_output_is_lost_in_any_order() {
        let inputs = || {
            vec![
                submit("p"),
                Input::Cancel,
                Input::TimeUp,
                Input::OutputLimit,
                Input::Full,
                Input::Gathered(frame("p")),
                Input::NotGathered("g".into()),
                Input::Started,
                Input::NotStarted("s".into()),
                Input::Exited,
                Input::Refused,
                Input::Stored { is_done: false },
                Input::NotStored("n".into()),
            ]
        };
        let mut state = 12345_u64;
        for _ in 0..20_000 {
            let (mut turn, mut submitted, mut settled, mut started, mut ingested) =
                (TurnMachine::default(), 0, 0, 0, 0);
            let mut cancelled = false;
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let choices = inputs();
                let input = choices[(state >> 33) as usize % choices.len()].clone();
                let is_submit = matches!(input, Input::Submit(_));
                cancelled |= matches!(input, Input::Cancel | Input::TimeUp | Input::OutputLimit);
                submitted += usize::from(is_submit);
                for effect in turn.step(input) {
                    match effect {
                        Effect::Gather(Sent::Prompt(_)) => settled += 1,
                        Effect::Tell(text) if text.starts_with("not sent") => settled += 1,
                        Effect::Start(_) => started += 1,
                        Effect::Ingest => ingested += 1,
                        Effect::IngestUnstarted(..)
                            if matches!(turn, TurnMachine::Storing { .. }) && started > ingested =>
                        {
                            ingested += 1;
                        }
                        _ => {}
                    }
                }
            }
            let waiting = match &turn {
                TurnMachine::Idle => 0,
                TurnMachine::Gathering { staged, .. }
                | TurnMachine::Starting { staged, .. }
                | TurnMachine::Running { staged }
                | TurnMachine::Stopping { staged, .. }
                | TurnMachine::Storing { staged, .. } => staged.len(),
            };
            if !cancelled {
                assert_eq!(submitted, settled + waiting, "{turn:?}");
            }
            let in_flight = matches!(
                turn,
                TurnMachine::Starting { .. } | TurnMachine::Running { .. } | TurnMachine::Stopping { .. }
            );
            assert_eq!(started, ingested + usize::from(in_flight), "{turn:?}");
        }
    }
}
