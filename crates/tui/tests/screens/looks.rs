//! Every screen looks as recorded, at every size.

use std::fmt::Write;

use azureal_tui::theme::Theme;

use crate::harness::{ASCII, COLOURS, NO_COLOURS, SIZES, Screen};
use crate::scenes::{SCENES, Scene};

/// Plays a scene and returns the screen after it.
pub(crate) fn played(scene: &Scene, size: (u16, u16), theme: Theme) -> Screen {
    let mut screen = Screen::new(size, theme);
    (scene.before)(&mut screen);
    screen.keys(scene.keys);
    (scene.after)(&mut screen);
    screen
}

fn before(scene: &Scene, size: (u16, u16)) -> String {
    let mut screen = Screen::new(size, COLOURS);
    (scene.before)(&mut screen);
    screen.text().trim_end().to_owned()
}

/// Returns the styles of a screen, without its text.
fn styles(screen: &str) -> &str {
    screen.split_once("--- styles\n").map_or("", |(_, styles)| styles)
}

#[test]
fn every_screen_looks_as_recorded() {
    for scene in SCENES {
        let mut out = String::new();
        if !scene.keys.is_empty() {
            writeln!(out, "=== before\n{}\n\n=== keys {}\n", before(scene, (80, 24)), scene.keys).unwrap();
        }
        for size in SIZES {
            let coloured = played(scene, size, COLOURS).styled();
            writeln!(out, "=== {}x{}\n{coloured}", size.0, size.1).unwrap();
            let plain = played(scene, size, NO_COLOURS).styled();
            let text = |screen: &str| screen.split_once("--- styles").unwrap().0.to_owned();
            assert_eq!(
                text(&coloured),
                text(&plain),
                "{}: without colours, the text is the same",
                scene.name
            );
            if size == (80, 24) {
                writeln!(out, "=== NO_COLOR styles\n{}", styles(&plain)).unwrap();
            }
        }
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(scene.name, out);
        });
    }
}

#[test]
fn without_colours_no_cell_has_one() {
    for scene in SCENES {
        for size in SIZES {
            let (buffer, _) = played(scene, size, NO_COLOURS).draw();
            for cell in buffer.content() {
                assert_eq!((cell.fg, cell.bg), Default::default(), "{} {cell:?}", scene.name);
            }
        }
    }
}

#[test]
fn with_ascii_marks_the_frame_of_the_screen_is_ascii() {
    for scene in SCENES {
        for size in SIZES {
            let text = played(scene, size, ASCII).text();
            let foreign: String = text.chars().filter(|c| !c.is_ascii() && !"…·".contains(*c)).collect();
            // The marks of the pane's own sentences are in every font.
            assert!(foreign.is_empty(), "{} at {size:?}: {foreign}\n{text}", scene.name);
        }
    }
}

#[test]
fn the_same_screen_at_every_size_has_its_cursor_inside() {
    for scene in SCENES {
        for size in [(1, 1), (2, 2), (7, 3), (20, 5), (59, 15), (109, 16), (110, 16), (300, 100), (0, 0)] {
            let (buffer, cursor) = played(scene, size, COLOURS).draw();
            if let Some(cursor) = cursor {
                assert!(buffer.area.contains(cursor), "{} at {size:?}: {cursor:?}", scene.name);
            }
        }
    }
}
