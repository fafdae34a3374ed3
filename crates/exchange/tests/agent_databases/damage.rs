//! Damaged databases: what can be read is read, the rest is reported, and nothing panics.

use std::fs;

use azureal_agents::native::NativeError;

use crate::database::{AGENTS, Home};

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        // xorshift64*, by Vigna.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16).unwrap() % end
    }
}

#[test]
fn a_row_that_cannot_be_read_costs_only_itself_and_is_named() {
    for (value, reason) in [
        ("'not JSON'", "it is no JSON object"),
        ("'[1]'", "it is no JSON object"),
        ("x'00ff'", "it is no JSON object"),
        ("7", "it is no JSON object"),
        ("'{\"type\":\"novel\"}'", "it is a part of an unknown kind: novel"),
        ("'{\"type\":\"tool\",\"state\":3}'", "the call has no state"),
        ("'{\"type\":\"text\",\"text\":\"' || hex(zeroblob(17 << 20)) || '\"}'", "it has 34 MiB"),
    ] {
        let recorded = Home::new("opencode");
        let id = "prt_1e56698d5001U2zJFz04FUup3m";
        recorded.change(&format!("UPDATE part SET data = {value} WHERE id = '{id}'"));
        assert_eq!(recorded.problems(), [format!("{id} was left out: {reason}")]);
        let events: usize = recorded.turns().iter().map(|turn| turn.events.len()).sum();
        let all: usize = Home::new("opencode").turns().iter().map(|turn| turn.events.len()).sum();
        assert_eq!(events, all - 1);
    }
    for (value, reason) in [
        ("'not JSON'", "its content is no list"),
        ("x'00ff'", "its content is no list"),
        ("'[7]'", "1 of its parts make no sense"),
        ("'[{\"type\":\"novel\"}]'", "a part in it is of an unknown kind: novel"),
        ("'[{\"type\":\"text\",\"text\":\"' || hex(zeroblob(17 << 20)) || '\"}]'", "it has 34 MiB"),
    ] {
        let recorded = Home::new("goose");
        recorded.change(&format!("UPDATE messages SET content_json = {value} WHERE id = 9"));
        assert_eq!(recorded.problems(), [format!("message 9 was left out: {reason}")]);
    }
}

#[test]
fn a_message_that_cannot_be_read_costs_only_itself() {
    let recorded = Home::new("opencode");
    recorded.change("UPDATE message SET data = 'half' WHERE data LIKE '%\"finish\":\"tool-calls\"%'");
    assert_eq!(recorded.turns().len(), 3);
    assert_eq!(recorded.problems().len(), 4, "{:?}", recorded.problems());
    let goose = Home::new("goose");
    goose.change("UPDATE messages SET role = 'ghost' WHERE id = 2");
    assert_eq!(goose.problems(), ["message 2 was left out: it is a message of an unknown role"]);
}

#[test]
fn a_database_of_an_unknown_version_is_an_error() {
    let recorded = Home::new("opencode");
    recorded.change("DROP TABLE session");
    let error = recorded.open().err().unwrap().to_string();
    assert!(error.contains("is of a version that azureal does not know"), "{error}");
}

#[test]
fn a_row_of_opencode_2_that_cannot_be_read_costs_only_itself_and_is_named() {
    for (kind, value, reason) in [
        ("assistant", "'not JSON'", "it is no JSON object"),
        ("assistant", "x'00ff'", "it is no JSON object"),
        ("assistant", "'{\"content\":7}'", "its content is no list"),
        ("assistant", "'{\"content\":[7]}'", "a part in it is no JSON object"),
        ("assistant", "'{\"content\":[{\"type\":\"tool\"}]}'", "a call in it has no state"),
        ("assistant", "'{\"content\":[{\"type\":\"novel\"}]}'", "a part in it is of an unknown kind: novel"),
        ("novel", "'{}'", "it is a message of an unknown kind: novel"),
        (
            "assistant",
            "'{\"content\":[{\"type\":\"text\",\"text\":\"' || hex(zeroblob(17 << 20)) || '\"}]}'",
            "it has 34 MiB",
        ),
    ] {
        let recorded = Home::of_opencode_2();
        recorded.change(&format!(
            "UPDATE session_message SET type = '{kind}', data = {value} WHERE id = 'msg_04'"
        ));
        assert_eq!(recorded.problems(), [format!("msg_04 was left out: {reason}")]);
        assert_eq!(recorded.turns().len(), 2);
    }
}

#[test]
fn a_file_that_is_no_database_is_an_error() {
    for agent in AGENTS {
        let recorded = Home::new(agent);
        for content in ["", "not a database", "SQLite format 3\0"] {
            fs::write(recorded.file(), content).unwrap();
            assert!(recorded.open().is_err(), "{agent}: {content:?}");
        }
        fs::remove_file(recorded.file()).unwrap();
        assert!(matches!(recorded.open(), Err(NativeError::File { .. })), "{agent}");
    }
}

#[test]
fn a_view_in_the_place_of_a_table_runs_no_code() {
    let recorded = Home::new("goose");
    recorded.change("ALTER TABLE messages RENAME TO kept; CREATE VIEW messages AS SELECT * FROM kept;");
    assert!(recorded.open().is_err());
}

/// Databases with random damage never panic.
#[test]
fn no_damage_makes_a_reader_panic() {
    let mut random = Random(0x5EED);
    for agent in AGENTS {
        let recorded = Home::new(agent);
        let whole = fs::read(recorded.file()).unwrap();
        let mut opened = 0;
        for _ in 0..150 {
            let mut content = whole.clone();
            for _ in 0..=random.below(20) {
                let at = random.below(content.len());
                content[at] = u8::try_from(random.below(256)).unwrap();
            }
            if random.below(4) == 0 {
                content.truncate(random.below(content.len()));
            }
            fs::write(recorded.file(), &content).unwrap();
            let Ok(home) = recorded.open() else { continue };
            opened += 1;
            for session in home.sessions(None).flatten() {
                let _ = home.head(&session);
                let Ok(mut turns) = home.turns(&session) else { continue };
                while let Ok(Some(_)) = turns.next_turn() {}
            }
        }
        assert!(opened > 20, "only {opened} databases could be opened");
    }
}
