//! Sets of a record as types of its object.

use percent_encoding::utf8_percent_encode;

use crate::{format::NOT_UNRESERVED, model::Uri};

/// Returns for each set of a record the URL of the list of this set, which identifies the set among those of other
/// repositories. A record without sets has the list of the whole repository: without a type, an object keeps its former ones.
pub(super) fn types(base_url: &str, prefix: &str, sets: Vec<String>, max: usize) -> Vec<Uri> {
    let mut sets = sets;
    sets.retain(|set| !set.is_empty());
    sets.sort_unstable();
    sets.dedup();
    let sets: Vec<_> = if sets.is_empty() { vec![None] } else { sets.into_iter().map(Some).collect() };
    sets.into_iter().filter_map(|set| list_url(base_url, prefix, set.as_deref())).take(max).collect()
}

/// Returns the URL of `ListRecords` for a set, or for the whole repository; `None` if that is not a URI.
fn list_url(base_url: &str, prefix: &str, set: Option<&str>) -> Option<Uri> {
    let encode = |value| utf8_percent_encode(value, NOT_UNRESERVED);
    let set = set.map(|set| format!("&set={}", encode(set))).unwrap_or_default();
    let separator = super::separator(base_url);
    Uri::parse(&format!("{base_url}{separator}verb=ListRecords&metadataPrefix={}{set}", encode(prefix))).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn sets_are_types_and_no_set_is_one_too() {
        let types = |sets: &[&str]| {
            let sets = sets.iter().map(|set| (*set).to_owned()).collect();
            let types = super::types("http://h/oai", "oai_dc", sets, 2);
            types.iter().map(|one| one.as_str().to_owned()).collect::<Vec<_>>()
        };
        let list = "http://h/oai?verb=ListRecords&metadataPrefix=oai_dc";
        assert_eq!(types(&[]), [list]);
        assert_eq!(types(&["b:c", "a", "a", ""]), [format!("{list}&set=a"), format!("{list}&set=b%3Ac")]);
        assert_eq!(types(&["a", "b", "c"]).len(), 2, "an object has a maximum number of types");
    }
}
