//! Queries of the feed: what is read has one address, and what is refused is said in print.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::view::Selection;
use tidings_fuzz::assert_printable;

fuzz_target!(|query: &str| {
    match Selection::parse(query) {
        Ok(selection) => {
            let address = selection.to_query();
            let again = Selection::parse(&address).unwrap_or_else(|problem| panic!("{address}: {}", problem.detail()));
            assert_eq!(again, selection, "{address}");
            assert_eq!(again.to_query(), address);
        }
        Err(problem) => assert_printable(problem.detail()),
    }
});
