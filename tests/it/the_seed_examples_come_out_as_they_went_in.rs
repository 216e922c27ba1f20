//! The four messages of the content-change-message 0.1 page, read and written again.

use std::fs;

use crate::{emitted, fixtures, xmllint};

const EXAMPLES: [&str; 4] = ["seed-ingest", "seed-modify", "seed-state", "seed-purge"];

#[test]
fn the_seed_examples_come_out_as_they_went_in() {
    let folder = tempfile::tempdir().unwrap();
    for example in EXAMPLES {
        let fixture = fixtures::folder("content-change").join(example).with_extension("xml");
        let modifications = emitted::modifications(&fixtures::read("content-change", &fixture).unwrap());
        let written = folder.path().join(example);
        fs::write(&written, emitted::as_format("atom", &modifications[0])).unwrap();
        assert_eq!(xmllint::canonical(&written), xmllint::canonical(&fixture), "{example}");
        // The page's own white space is kept too.
        assert_eq!(fs::read_to_string(&written).unwrap(), fs::read_to_string(&fixture).unwrap(), "{example}");
    }
}
