//! Lines that come out of a file while it is written.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::scratch::{PATIENCE, Scratch, assert_success, in_own_process, line, lines, own_kib, role};
use azureal_process::{Follow, FollowError, Line, Progress};

/// Reads a file that nobody writes any more.
fn finished(follow: &mut Follow) -> Vec<Line> {
    std::iter::from_fn(|| follow.next_line(|_| true).unwrap()).collect()
}

fn follow(path: &Path) -> Follow {
    Follow::open(path, 0).unwrap()
}

#[test]
fn a_finished_file_gives_its_lines_and_what_is_left() {
    for (text, expected, fragment) in [
        ("", vec![], None),
        ("\n", vec![""], None),
        ("one\n\ntwo\r\n", vec!["one", "", "two\r"], None),
        ("one\ntwo", vec!["one"], Some("two")),
        ("half", vec![], Some("half")),
    ] {
        let scratch = Scratch::new();
        fs::write(scratch.spool(), text).unwrap();
        let mut follow = follow(&scratch.spool());
        let expected: Vec<Line> = expected.iter().map(line).collect();
        assert_eq!(finished(&mut follow), expected, "{text:?}");
        assert_eq!(follow.remaining_fragment().unwrap(), fragment.map(line), "{text:?}");
        assert_eq!(follow.offset() as usize, text.len() - fragment.unwrap_or_default().len());
    }
}

#[test]
fn lines_are_the_same_wherever_the_pieces_end() {
    // Around the size of what is read at a time, and several times as long.
    let lengths = [65_534, 0, 65_535, 65_536, 1, 65_537, 200_000, 131_071, 3];
    let expected: Vec<Vec<u8>> =
        lengths.iter().zip(b'a'..).map(|(length, letter)| vec![letter; *length]).collect();
    let scratch = Scratch::new();
    fs::write(scratch.spool(), [expected.join(&b'\n'), b"\n".to_vec()].concat()).unwrap();
    let all: Vec<Line> = expected.iter().map(line).collect();
    assert_eq!(finished(&mut follow(&scratch.spool())), all);

    // From the offset that one reached, another continues.
    for count in 0..=all.len() {
        let mut first = follow(&scratch.spool());
        for _ in 0..count {
            first.try_line().unwrap().unwrap();
        }
        let mut second = Follow::open(scratch.spool(), first.offset()).unwrap();
        assert_eq!(finished(&mut second), all[count..]);
    }
}

#[test]
fn a_line_comes_when_it_is_whole_and_not_before() {
    let scratch = Scratch::new();
    let mut output = scratch.output();
    let mut follow = follow(&scratch.spool());
    for text in ["first", "", "zweite ✓", "{\"a\":\"b\"}"] {
        for byte in text.bytes() {
            output.write_all(&[byte]).unwrap();
            assert_eq!(follow.try_line().unwrap(), None);
        }
        let fragment = follow.remaining_fragment().unwrap();
        assert_eq!(fragment, (!text.is_empty()).then(|| line(text)));
        output.write_all(b"\n").unwrap();
        assert_eq!(follow.try_line().unwrap(), Some(line(text)));
        assert_eq!(follow.try_line().unwrap(), None);
    }
}

#[test]
fn a_child_is_followed_to_its_last_line() {
    for _ in 0..20 {
        let scratch = Scratch::new();
        let child = scratch
            .sh("i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo $i; done; printf half")
            .start()
            .unwrap();
        let mut follow = follow(&scratch.spool());
        let expected: Vec<Line> = (1..=50).map(|n| line(n.to_string())).collect();
        assert_eq!(lines(&mut follow, &child).unwrap(), expected);
        assert_eq!(follow.remaining_fragment().unwrap(), Some(line("half")));
    }
}

#[test]
fn bytes_of_another_process_one_by_one_are_lines() {
    let scratch = Scratch::new();
    let script =
        "for word in one two three; do for i in 1 2 3 4 5 6 7 8; do printf x; done; echo $word; done";
    let child = scratch.sh(script).start().unwrap();
    let expected = ["one", "two", "three"].map(|word| line(format!("xxxxxxxx{word}")));
    assert_eq!(lines(&mut follow(&scratch.spool()), &child).unwrap(), expected);
}

#[test]
fn a_line_is_seen_soon_after_it_was_written() {
    let scratch = Scratch::new();
    let mut output = scratch.output();
    let mut follow = follow(&scratch.spool());
    let (seen, seen_at) = channel();
    let reader = thread::spawn(move || {
        let start = Instant::now();
        let writer_ended = |pause: Duration| {
            thread::sleep(pause);
            start.elapsed() > PATIENCE
        };
        while let Some(line) = follow.next_line(writer_ended).unwrap() {
            seen.send(Instant::now()).unwrap();
            if line == self::line("end") {
                break;
            }
        }
    });
    let mut delays = Vec::new();
    for round in 0..12 {
        // After silences of several lengths, the longest of which leads to the longest pause. What is waited for
        // here is silence, so that there is nothing else to wait for.
        thread::sleep(Duration::from_millis(25 * round));
        let written = Instant::now();
        output.write_all(if round == 11 { b"end\n" } else { b"line\n" }).unwrap();
        delays.push(seen_at.recv_timeout(PATIENCE).unwrap() - written);
    }
    reader.join().unwrap();
    delays.sort();
    // The median, as a busy machine may let anybody wait.
    assert!(delays[delays.len() / 2] <= Duration::from_millis(20), "{delays:?}");
}

#[test]
fn a_line_that_is_too_long_is_counted_and_skipped() {
    let scratch = Scratch::new();
    let mut output = scratch.output();
    output.write_all(b"12345\n123456\n").unwrap();
    output.write_all(&[b'x'; 300_000]).unwrap();
    output.write_all(b"\nlast\n1234567").unwrap();
    let mut follow = follow(&scratch.spool()).with_limit(5);
    let expected =
        [line("12345"), Line::Oversized { bytes: 6 }, Line::Oversized { bytes: 300_000 }, line("last")];
    assert_eq!(finished(&mut follow), expected);
    assert_eq!(follow.remaining_fragment().unwrap(), Some(Line::Oversized { bytes: 7 }));
}

#[test]
fn a_line_of_200_megabytes_is_not_held_in_memory() {
    const LENGTH: u64 = 200_000_000;
    if let Some((_, folder)) = role() {
        let before = own_kib("VmHWM");
        let scratch = Scratch::new();
        let script = format!("head -c {LENGTH} /dev/zero; echo; echo after; head -c {LENGTH} /dev/zero");
        let child = scratch.sh(&script).start().unwrap();
        let mut follow = follow(&scratch.spool());
        let expected = [Line::Oversized { bytes: LENGTH }, line("after")];
        assert_eq!(lines(&mut follow, &child).unwrap(), expected);
        let fragment = follow.remaining_fragment().unwrap();
        assert_eq!(fragment, Some(Line::Oversized { bytes: LENGTH }));
        if let Some((before, after)) = before.zip(own_kib("VmHWM")) {
            assert!(after - before < 10_000, "grew from {before} to {after} KiB");
        }
        fs::write(folder.join("done"), "").unwrap();
        return;
    }
    let scratch = Scratch::new();
    let test = "follow::a_line_of_200_megabytes_is_not_held_in_memory";
    assert_success(&in_own_process(test, scratch.folder.path()));
    assert!(scratch.path("done").exists());
}

#[test]
fn a_line_without_end_does_not_keep_the_caller_from_its_checks() {
    let scratch = Scratch::new();
    // A hole: no disk is used.
    scratch.output().set_len(100 << 20).unwrap();
    let mut follow = follow(&scratch.spool());
    let mut polls = 0;
    while follow.poll().unwrap() == Progress::Reading {
        polls += 1;
    }
    assert!((20..=30).contains(&polls), "{polls} polls of 4 MiB each");
    assert_eq!(follow.take_line().unwrap(), None);
    scratch.output().write_all(b"\n").unwrap();
    assert_eq!(follow.poll().unwrap(), Progress::Line { bytes: 100 << 20 });
    assert_eq!(follow.take_line().unwrap(), Some(Line::Oversized { bytes: 100 << 20 }));
}

#[test]
fn a_file_that_others_still_write_has_the_end_that_it_is_given() {
    let scratch = Scratch::new();
    fs::write(scratch.spool(), "one\ntwo\nthr").unwrap();
    let mut follow = follow(&scratch.spool());
    follow.end_at(follow.length().unwrap());
    scratch.output().write_all(b"ee\nfour\nfive\n").unwrap();
    assert_eq!(finished(&mut follow), ["one", "two", "three"].map(line));
    assert_eq!(follow.remaining_fragment().unwrap(), None);
}

#[test]
fn reading_continues_with_the_first_whole_line_after_a_gap() {
    for (offset, expected) in
        [(1, &["two", "three"][..]), (3, &["two", "three"]), (4, &["three"]), (9, &[]), (13, &[])]
    {
        let scratch = Scratch::new();
        fs::write(scratch.spool(), "one\ntwo\nthree\nfo").unwrap();
        let mut follow = follow(&scratch.spool());
        follow.skip_to(offset);
        let expected: Vec<Line> = expected.iter().map(line).collect();
        assert_eq!(finished(&mut follow), expected, "{offset}");
        let fragment = follow.remaining_fragment().unwrap();
        assert_eq!(fragment, (offset < 14).then(|| line("fo")), "{offset}");
    }
    let scratch = Scratch::new();
    fs::write(scratch.spool(), "one\ntwo without an end").unwrap();
    let mut follow = follow(&scratch.spool());
    follow.skip_to(8);
    assert_eq!((finished(&mut follow), follow.remaining_fragment().unwrap()), (vec![], None));
}

#[test]
fn a_million_empty_lines_are_a_million_lines() {
    let scratch = Scratch::new();
    fs::write(scratch.spool(), vec![b'\n'; 1_000_000]).unwrap();
    let mut follow = follow(&scratch.spool());
    let mut count = 0;
    while let Some(line) = follow.try_line().unwrap() {
        assert_eq!(line, self::line(""));
        count += 1;
    }
    assert_eq!(count, 1_000_000);
}

#[test]
fn a_file_that_is_deleted_is_followed_to_its_end() {
    let scratch = Scratch::new();
    let mut output = scratch.output();
    output.write_all(b"before\n").unwrap();
    let mut follow = follow(&scratch.spool());
    assert_eq!(follow.try_line().unwrap(), Some(line("before")));
    fs::remove_file(scratch.spool()).unwrap();
    fs::write(scratch.spool(), "somebody else's\n").unwrap();
    output.write_all(b"after\n").unwrap();
    assert_eq!(finished(&mut follow), [line("after")]);
}

#[test]
fn a_file_that_is_cut_is_an_error_and_not_a_wait() {
    let scratch = Scratch::new();
    fs::write(scratch.spool(), "one\ntwo\nthree").unwrap();
    let mut follow = follow(&scratch.spool());
    assert_eq!(finished(&mut follow), [line("one"), line("two")]);
    File::options().write(true).open(scratch.spool()).unwrap().set_len(4).unwrap();
    for _ in 0..2 {
        let error = follow.next_line(|_| false).unwrap_err();
        assert!(matches!(error, FollowError::Shrunk { read: 13, found: 4, .. }), "{error:?}");
    }
    assert!(matches!(Follow::open(scratch.spool(), 5), Err(FollowError::Shrunk { read: 5, found: 4, .. })));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let scratch = Scratch::new();
    let error = Follow::open(scratch.path("missing"), 0).unwrap_err();
    assert!(matches!(error, FollowError::Unreadable { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("{} cannot be read", scratch.path("missing").display()));
}

#[test]
fn a_writer_that_is_nobodys_child_is_followed_by_its_identity() {
    let scratch = Scratch::new();
    let child = scratch.sh("echo one; sleep 0.1; echo two").start().unwrap();
    let mut follow = follow(&scratch.spool());
    let mut seen = Vec::new();
    while let Some(line) = follow.next_line(|pause| child.identity().wait_timeout(pause)).unwrap() {
        seen.push(line);
    }
    assert_eq!(seen, [line("one"), line("two")]);
}
