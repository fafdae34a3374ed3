//! Homes list their sessions, and heads say where they ran.

use std::fs;
use std::path::{Path, PathBuf};

use azureal_agents::native::{self, NativeError, NativeSource};

use crate::cases::{self, Case};

/// The directory of the recordings.
fn project() -> PathBuf {
    let root = cases::fixtures().join("gemini/three-turns/dot-gemini/tmp/project/dot-project_root");
    PathBuf::from(fs::read_to_string(root).unwrap())
}

#[test]
fn a_head_says_where_and_when_a_session_began() {
    for name in ["gemini/three-turns", "gemini/continued", "qwen/three-turns", "copilot/three-turns"] {
        let case = Case::named(name);
        let (home, session) = (case.open(), case.sessions().remove(0));
        let head = home.head(&session).unwrap();
        assert_eq!(head.cwd.as_deref(), Some(project().as_path()), "{name}");
        assert_eq!(head.id.len(), 36, "{name}: {}", head.id);
        assert!(head.started.is_some() && head.title.is_none() && !head.is_subagent, "{name}");
        assert!(session.size > 0 && session.changed.is_some(), "{name}");
    }
}

#[test]
fn forks_begin_with_the_entry_of_their_origin_and_some_name_it() {
    let case = Case::named("claude/forked");
    let home = case.open();
    let heads: Vec<_> = case.sessions().iter().map(|session| home.head(session).unwrap()).collect();
    let [fork, branch, origin] = heads.as_slice() else { panic!("{heads:?}") };
    assert!(origin.first.is_some() && fork.first == origin.first && branch.first == origin.first);
    assert_eq!((&branch.copied_from, &fork.copied_from), (&Some(origin.id.clone()), &None));
}

#[test]
fn sessions_of_another_project_are_left_out_if_their_folder_shows_it() {
    for name in ["gemini/three-turns", "gemini/continued", "qwen/three-turns"] {
        let case = Case::named(name);
        let home = case.open();
        let count = |project: &Path| home.sessions(Some(project)).count();
        let all = home.sessions(None).count();
        assert_eq!(count(&project()), all, "{name}");
        assert_eq!(count(project().parent().unwrap()), all, "{name}: the project is below it");
        assert_eq!(count(Path::new("/elsewhere")), 0, "{name}");
    }
}

#[test]
fn a_file_without_a_conversation_is_no_session() {
    let case = Case::named("gemini/continued");
    let home = case.open();
    assert_eq!(home.sessions(None).count(), 3);
    let refused: Vec<NativeError> =
        home.sessions(None).filter_map(|session| home.head(&session.unwrap()).err()).collect();
    assert_eq!(refused.len(), 2);
    assert!(refused[0].to_string().ends_with(": it has no conversation"), "{}", refused[0]);
}

#[test]
fn a_file_or_folder_that_the_user_names_is_opened() {
    for case in Case::all() {
        let file = case.file();
        let by_home = case.turns();
        assert_eq!(cases::read_file(&case.agent, &file), by_home);
        let folder = cases::open(&case.agent, file.parent().unwrap());
        let session = folder.sessions(None).next().unwrap().unwrap();
        assert_eq!(cases::read(&*folder, &session), by_home);
    }
}

#[test]
fn every_format_is_recognised() {
    for case in Case::all() {
        let file = case.file();
        let source = native::recognise(&file).unwrap();
        assert_eq!(source.map(NativeSource::agent), Some(case.agent.as_str()), "{}", file.display());
    }
}

#[test]
fn homes_are_found_by_the_variables_of_the_programs() {
    let homes = |agent: &str, variables: &[(&str, &str)]| -> Vec<PathBuf> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        native::source(agent).unwrap().homes(&variable)
    };
    for (agent, folder, own, in_own) in [
        ("gemini", "/u/.gemini", "GEMINI_CLI_HOME", "/own/.gemini"),
        ("qwen", "/u/.qwen", "QWEN_HOME", "/own"),
        ("copilot", "/u/.copilot", "COPILOT_HOME", "/own"),
    ] {
        assert_eq!(homes(agent, &[("HOME", "/u")]), [PathBuf::from(folder)], "{agent}");
        assert_eq!(homes(agent, &[("HOME", "/u"), (own, "/own")]), [PathBuf::from(in_own)], "{agent}");
        assert_eq!(homes(agent, &[("HOME", "/u"), (own, "")]), [PathBuf::from(folder)], "{agent}");
        assert!(homes(agent, &[]).is_empty(), "{agent}");
    }
}

#[test]
fn a_session_that_the_user_named_has_its_title() {
    let case = Case::named("copilot/three-turns");
    let facts = case.file().with_file_name("workspace.yaml");
    let named = fs::read_to_string(&facts).unwrap().replace("user_named: false", "user_named: true");
    let named = named.replace("name: |-\n  Tidy up\n  please", "name: The great tidying");
    fs::write(&facts, named).unwrap();
    let head = case.open().head(&case.sessions()[0]).unwrap();
    assert_eq!(head.title.as_deref(), Some("The great tidying"));
}
