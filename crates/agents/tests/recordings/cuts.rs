//! However the output is cut into pieces on its way, it is the same output.
//!
//! The pieces go through a file and the reader that joins them to lines in a live run, then to the parser. The
//! parser sees nothing but lines, and says the same of the same lines; so at every single position it is enough
//! to look at the lines, and the parsers are played byte by byte and at some positions in every recording.

use std::thread;

use crate::cases::{self, Case, Growing};
use crate::random::Random;

/// Recordings up to this are cut at every byte.
const SMALL: usize = 32 * 1024;
/// In how many places a larger one is cut, besides the edges of its lines.
const SAMPLES: usize = 1000;

#[test]
fn a_cut_anywhere_gives_the_same_lines() {
    let cases = cases::all();
    let mut positions = 0;
    thread::scope(|scope| {
        // Two halves of about the same size: the small ones are many.
        let halves = [0, 1].map(|half| {
            let cases = &cases;
            scope.spawn(move || cases.iter().skip(half).step_by(2).map(cut_everywhere).sum::<usize>())
        });
        positions = halves.into_iter().map(|half| half.join().unwrap()).sum();
    });
    assert!(positions > 400_000, "only {positions} cuts");
}

/// Cuts a recording in two wherever it is to be cut, and returns in how many places that was.
fn cut_everywhere(case: &Case) -> usize {
    let stdout = &case.stdout;
    let mut growing = Growing::new();
    let whole = growing.join([stdout.as_slice()]);
    assert_eq!(whole.lines.len(), stdout.iter().filter(|byte| **byte == b'\n').count());
    let positions: Vec<usize> = if stdout.len() <= SMALL {
        (0..=stdout.len()).collect()
    } else {
        let mut random = Random(7);
        let edges = stdout.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let edges = edges.flat_map(|(at, _)| [at, at + 1]);
        edges.chain((0..SAMPLES).map(|_| random.below(stdout.len()))).collect()
    };
    for at in &positions {
        let joined = growing.join([&stdout[..*at], &stdout[*at..]]);
        // Not by `assert_eq`, which would print all of it.
        assert!(joined == whole, "{} cut at {at}", case.name);
    }
    positions.len()
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
