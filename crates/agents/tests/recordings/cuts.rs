//! However the output is cut into pieces on its way, it is the same output.
//!
//! A parser sees whole lines, so a cut can only change which lines there are. That is tried at every position;
//! the parsers themselves are played byte by byte, and at some positions in every recording.

use crate::cases::{self, Lines};
use crate::random::Random;

const SMALL: usize = 32 * 1024;

fn lines(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut splitter = Lines::default();
    let mut found = Vec::new();
    for piece in pieces {
        splitter.feed(piece, |line| found.push(line.to_vec()));
    }
    (found, splitter.rest)
}

#[test]
fn a_cut_anywhere_gives_the_same_lines() {
    let mut random = Random(7);
    for case in cases::all() {
        // A cut in one line cannot reach another: nothing is kept between them.
        let mut start = 0;
        for line in case.stdout.split_inclusive(|byte| *byte == b'\n') {
            let whole = lines(&[line]);
            // Megabytes a thousand times over would take minutes.
            let samples = if line.len() > 100_000 { 30 } else { 1000 };
            let positions: Vec<usize> = match case.stdout.len() <= SMALL {
                true => (0..=line.len()).collect(),
                false => (0..samples)
                    .map(|_| random.below(line.len()))
                    .chain([0, line.len() - 1, line.len()])
                    .collect(),
            };
            for at in positions {
                assert_eq!(lines(&[&line[..at], &line[at..]]), whole, "{} at {}", case.name, start + at);
            }
            start += line.len();
        }
    }
}

#[test]
fn pieces_give_the_same_outputs() {
    let mut random = Random(11);
    for case in cases::all() {
        let whole = case.play();
        let bytes: Vec<&[u8]> = case.stdout.chunks(1).collect();
        assert_eq!(case.play_in_pieces(bytes), whole, "{} byte by byte", case.name);
        let rounds = if case.stdout.len() <= SMALL { 20 } else { 3 };
        for _ in 0..rounds {
            let (a, b) = (random.below(case.stdout.len() + 1), random.below(case.stdout.len() + 1));
            let (a, b) = (a.min(b), a.max(b));
            let pieces = [&case.stdout[..a], &case.stdout[a..b], &case.stdout[b..]];
            assert_eq!(case.play_in_pieces(pieces), whole, "{} at {a} and {b}", case.name);
        }
    }
}

#[test]
fn what_was_printed_before_a_death_is_kept() {
    for case in cases::all() {
        let whole = case.play();
        let mut end = 0;
        for line in case.stdout.split_inclusive(|byte| *byte == b'\n') {
            end += line.len();
            let cut = case.play_in_pieces([&case.stdout[..end]]);
            // The last output is the end of the run; before it there may be an error, and text that was open.
            let same = cut.iter().zip(&whole).take_while(|(a, b)| a == b).count();
            assert!(cut.len() - same <= 4, "{} up to {end}: {:?}", case.name, &cut[same..]);
        }
    }
}
