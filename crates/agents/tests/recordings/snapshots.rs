//! Every recording gives the events that lie beside it.

use crate::cases;
use crate::render::render;

#[test]
fn every_recording_gives_its_events() {
    for case in cases::all() {
        let text = render(&case.play());
        insta::with_settings!({
            snapshot_path => &case.folder,
            prepend_module_to_snapshot => false,
            omit_expression => true,
            description => case.name.as_str(),
        }, {
            insta::allow_duplicates! { insta::assert_snapshot!("events", text) }
        });
    }
}
