//! Permission questions: who may answer them, and who may not.

use azureal_process::ChildEnvironment;

use super::*;
use crate::machine::is_own_process;

#[test]
fn a_permission_question_is_asked_live_and_answered_by_a_person() {
    for (option, said, allowed) in [("yes", "selected \"yes\"", true), ("no", "selected \"no\"", false)] {
        let project = Project::new();
        let finished = project.run_with(&Bridge::new("ask"), "hi", |running| {
            let asked = running.wait_for(|output| matches!(output, AgentOutput::Question(_)));
            let open = running.question();
            assert_eq!(asked, AgentOutput::Question(open.question.clone()));
            assert_eq!(
                (open.question.title.as_str(), open.question.kind.as_str()),
                ("Run `make`", "execute")
            );
            assert!(open.question.input.contains(r#""command":"make""#));
            running.control.answer(&open, option).unwrap();
            let AgentOutput::Answered(answered) =
                running.wait_for(|output| matches!(output, AgentOutput::Answered(_)))
            else {
                panic!()
            };
            assert_eq!((answered.by, answered.allowed), (AnsweredBy::Person, allowed));
        });
        assert_eq!(finished.complete.outcome, Some(Outcome::Done), "{}", project.error());
        assert_eq!(project.history()[1], Message::assistant(said));
        let refused: &[String] = if allowed { &[] } else { &["Run `make`".to_owned()] };
        assert_eq!(finished.refused, refused);
    }
}

#[test]
fn an_answer_must_carry_the_nonce_of_its_question() {
    let project = Project::new();
    project.run_with(&Bridge::new("ask"), "hi", |running| {
        let open = running.question();
        let refused = |question: &OpenQuestion, option: &str| match running.control.answer(question, option) {
            Err(ControlError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        for nonce in ["", "0", &uuid_like(&open.nonce)] {
            let guessed = OpenQuestion { nonce: nonce.to_owned(), ..open.clone() };
            assert_eq!(refused(&guessed, "yes"), Refusal::WrongNonce, "{nonce}");
        }
        let mut other = open.clone();
        other.question.id = "q2".to_owned();
        assert_eq!(refused(&other, "yes"), Refusal::NoSuchQuestion);
        assert_eq!(refused(&open, "perhaps"), Refusal::NoSuchOption);
        assert_eq!(running.control.questions().unwrap(), std::slice::from_ref(&open), "it is still open");
        // The nonce is in no file that the agent can read.
        let spool = running.project.path(&format!(".azureal/spool/{}.jsonl", running.run));
        let spool = fs::read_to_string(spool).unwrap();
        assert!(spool.contains("\"question\"") && !spool.contains(&open.nonce), "{spool}");
        running.control.answer(&open, "no").unwrap();
    });
    assert_eq!(project.history()[1], Message::assistant("selected \"no\""));
}

/// Returns another nonce of the same form.
fn uuid_like(nonce: &str) -> String {
    nonce.chars().rev().map(|digit| if digit == 'a' { 'b' } else { 'a' }).collect()
}

#[test]
fn a_policy_answers_what_it_knows() {
    let project = Project::new();
    let finished = project.run(&Bridge::new("ask-read"), "hi");
    assert_eq!(project.history()[1], Message::assistant("selected \"yes\""));
    assert_eq!(finished.refused, [] as [String; 0]);
    let mut agent = Bridge::new("ask");
    agent.policy.otherwise = Consent::Refuse;
    let project = Project::new();
    let finished = project.run(&agent, "hi");
    assert_eq!(project.history()[1], Message::assistant("selected \"no\""));
    assert_eq!(finished.refused, ["Run `make`"]);
}

#[test]
fn an_agent_cannot_allow_itself_anything() {
    let project = Project::new();
    let agent = Bridge::new(&format!("intrude {}", project.folder.join("run/azureal").display()));
    project.run_with(&agent, "hi", |running| {
        let open = running.question();
        for way in ["direct", "away"] {
            let path = running.project.path(way);
            let found =
                until(way, || fs::read_to_string(&path).ok().filter(|text| text.lines().count() == 3));
            assert_eq!(found, "{\"refused\":\"from_the_agent\"}\n".repeat(3), "{way}");
        }
        assert_eq!(running.control.questions().unwrap(), std::slice::from_ref(&open), "it is still open");
        running.control.answer(&open, "no").unwrap();
    });
    assert_eq!(project.outcomes(), [Outcome::Done], "nor cancel");
    assert_eq!(project.history()[1], Message::assistant("selected \"no\""));
}

#[test]
fn an_agent_does_not_see_where_the_control_channel_is() {
    let project = Project::new();
    project.run(&Bridge::new("look"), "a secret prompt");
    let seen = project.history()[1].first_text().unwrap().to_owned();
    assert!(seen.contains("AZUREAL_RUN_ID=") && seen.contains("__bridge"), "{seen}");
    for hidden in ["run/azureal", ".sock", "a secret prompt", "nonce"] {
        assert!(!seen.contains(hidden), "{hidden}: {seen}");
    }
}

#[test]
fn a_variable_that_was_not_passed_in_reaches_neither_the_bridge_nor_its_agent() {
    // The other process has a variable of its own, beside those of cargo.
    if !is_own_process(
        "bridge::questions::a_variable_that_was_not_passed_in_reaches_neither_the_bridge_nor_its_agent",
    ) {
        return;
    }
    let mut project = Project::new();
    project.environment = ChildEnvironment::from_iter([("PATH", "/usr/bin:/bin"), ("GIVEN", "yes")]);
    project.run(&Bridge::new("look"), "hi");
    let seen = project.history()[1].first_text().unwrap().to_owned();
    assert_eq!(seen.matches("GIVEN=yes").count(), 2, "{seen}");
    assert!(!seen.contains("AZUREAL_TEST_OWN_PROCESS"), "{seen}");
}
