//! Queries of the feed. A valid query has one canonical form, and the error of an invalid one is printable.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::{view::Selection, web::ReadPermit};
use tidings_fuzz::assert_printable;

fuzz_target!(|query: &str| {
    match Selection::parse(query, &ReadPermit::whole()) {
        Ok(selection) => {
            let canonical = selection.to_query();
            let again = Selection::parse(&canonical, &ReadPermit::whole())
                .unwrap_or_else(|problem| panic!("{canonical}: {}", problem.detail()));
            assert_eq!(again, selection, "{canonical}");
            assert_eq!(again.to_query(), canonical);
        }
        Err(problem) => assert_printable(problem.detail()),
    }
});
