//! Suggestions for a name that nothing has, as a "did you mean" of an error.

/// Returns the known name that `name` was most likely meant to be, if it is like any.
pub(crate) fn nearest_name<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 3)
        .min()
        .map(|(_, known)| known)
}

/// Returns what to write instead of `name`: the known name that was most likely meant, and all of them.
pub(crate) fn advice(name: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest_name(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean {nearest:?}? There are {all}"),
        None => format!("there are {all}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{advice, nearest_name};

    #[test]
    fn nearest_name_is_like_the_given_one() {
        let known = ["after", "limit", "listen"];
        for (name, nearest) in
            [("limt", Some("limit")), ("lisetn", Some("listen")), ("after", Some("after")), ("x", None)]
        {
            assert_eq!(nearest_name(name, known), nearest, "{name}");
        }
    }

    #[test]
    fn advice_lists_all_names() {
        assert_eq!(advice("amq", &["amqp", "http"]), "did you mean \"amqp\"? There are amqp, http");
        assert_eq!(advice("kafka", &["amqp", "http"]), "there are amqp, http");
    }
}
