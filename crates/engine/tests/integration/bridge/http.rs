//! Models behind HTTP.

use super::*;

#[test]
fn a_model_behind_http_goes_through_a_bridge() {
    let server = ModelServer::scripted([Answer::new().text_in(["Hello ", "from the model"])]);
    let project = Project::new();
    let finished = project.run(&Bridge::http(&server.url()), "hi");
    assert_eq!(finished.complete.outcome, Some(Outcome::Done), "{}", project.error());
    assert_eq!(project.history(), [Message::user("hi"), Message::assistant("Hello from the model")]);
    assert_eq!(server.requests()[0].prompt(), Some("hi"));
}

#[test]
fn a_model_that_fails_is_told_of() {
    for (answer, error) in [
        (Answer::error(500, "out of order"), "answered with status 500: "),
        (Answer::new().text("half").cut(StreamPosition::Events(4)), "the response was cut off"),
    ] {
        let server = ModelServer::scripted([answer]);
        let project = Project::new();
        let finished = project.run(&Bridge::http(&server.url()), "hi");
        assert_eq!(finished.complete.outcome, Some(Outcome::Failed));
        assert!(project.error().contains(error), "{}", project.error());
    }
    let project = Project::new();
    assert_eq!(
        project.run(&Bridge::http("https://example.org"), "hi").complete.outcome,
        Some(Outcome::Failed)
    );
    assert!(project.error().contains("only `http://` and a loopback address"), "{}", project.error());
}

#[test]
fn a_model_that_stops_in_its_answer_is_cancelled() {
    let gate = Gate::new();
    let server = ModelServer::scripted([Answer::new().text("half").hold(&gate).text("never")]);
    let project = Project::new();
    let finished = project.run_with(&Bridge::http(&server.url()), "hi", |running| {
        running.wait_for_half();
        running.handle.cancel();
    });
    assert_eq!(finished.complete.outcome, Some(Outcome::Cancelled));
    assert_eq!(project.history()[1], Message::assistant("half"));
    gate.open();
}
