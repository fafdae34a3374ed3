//! The screens of the interface: scripts of keys and news, and what is drawn after them.

#![allow(clippy::disallowed_methods, reason = "tests read `UPDATE_DOCS`")]

mod harness;
mod world;

#[test]
fn try_it() {
    for size in harness::SIZES {
        let mut screen = harness::Screen::new(size, harness::COLOURS);
        world::in_turn(&mut screen);
        println!("{}", screen.styled());
        screen.keys("'and more'");
        println!("{}", screen.text());
        screen.keys("f1");
        println!("{}", screen.text());
        screen.keys("esc f2");
        println!("{}", screen.text());
        screen.keys("esc f3");
        println!("{}", screen.text());
    }
}
