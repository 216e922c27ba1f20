//! Texts shared by error messages: "did you mean" for unknown names, and plain words for errors of serde.

use crate::features::missing;

/// Returns the known name that is most similar to `name`, if any is similar enough. The time does not grow with the length of
/// `name`, which can be of a foreign message.
pub(crate) fn nearest_name<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let similar = known.into_iter().filter_map(|known| {
        let most = 1 + known.len() / 3;
        // Each further character is one more difference.
        if name.chars().nth(known.len() + most).is_some() {
            return None;
        }
        Some((strsim::damerau_levenshtein(name, known), known)).filter(|(distance, _)| *distance <= most)
    });
    similar.min().map(|(_, known)| known)
}

/// Returns a suggestion for the unknown name `name`: the most similar known name, if any, and the list of all.
pub(crate) fn advice(name: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest_name(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean {nearest:?}? There are {all}"),
        None => format!("there are {all}"),
    }
}

/// Returns the error about a name that is not among `known`. `what` describes the kind of thing.
pub(crate) fn unknown_name(what: &str, name: &str, known: &[&str]) -> String {
    missing(name).unwrap_or_else(|| format!("there is no {what} {name:?}; {}", advice(name, known)))
}

/// Describes an environment variable that should contain a secret. A text that may be the secret itself by mistake is not
/// repeated.
pub(crate) fn describe_variable(name: &str) -> String {
    if is_variable_name(name) {
        format!("the environment variable {name}")
    } else {
        "the environment variable that it names".to_owned()
    }
}

/// Returns whether a text is the name of a variable, and certainly no secret: it consists of capital letters, digits and
/// underscores, and has an underscore or fewer than 16 bytes, unlike a random secret.
pub(crate) fn is_variable_name(text: &str) -> bool {
    let is_name_byte = |byte: u8| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit();
    text.bytes().all(is_name_byte) && (text.contains('_') || text.len() < 16)
}

/// Returns the reason of a serde error in the words of the configuration. It omits values of a wrong type, because they
/// may be secrets. Other messages are returned unchanged.
pub(crate) fn plain_reason(message: &str) -> String {
    // serde puts names into backticks.
    let names = |text| str::split(text, '`').skip(1).step_by(2).collect::<Vec<&str>>();
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("{} is missing", names(field).concat());
    }
    if let Some((name, known)) = message.strip_prefix("unknown field ").and_then(|rest| rest.split_once("`, ")) {
        let (name, known) = (name.trim_start_matches('`'), names(known));
        let advice = if known.is_empty() { "leave it out".to_owned() } else { advice(name, &known) };
        return format!("there is no setting {name:?}; {advice}");
    }
    if let Some((value, known)) = message.strip_prefix("unknown variant ").and_then(|rest| rest.split_once("`, ")) {
        let value = value.trim_start_matches('`');
        return format!("there is no {value:?}; {}", advice(value, &names(known)));
    }
    match message.strip_prefix("invalid ").and_then(|rest| rest.split_once(", expected ")) {
        Some((_, "a boolean")) => "give true or false".to_owned(),
        Some((_, "a sequence")) => "give a list".to_owned(),
        Some((_, "a string")) => "give text".to_owned(),
        Some((_, "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize")) => {
            "give a whole number".to_owned()
        }
        Some((_, expected)) if expected == "a map" || expected.starts_with("struct ") => "give a table".to_owned(),
        Some((_, expected)) => format!("give {expected}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{advice, nearest_name, plain_reason};

    #[test]
    fn nearest_name_is_found() {
        let known = ["after", "limit", "listen"];
        for (name, nearest) in
            [("limt", Some("limit")), ("lisetn", Some("listen")), ("after", Some("after")), ("x", None)]
        {
            assert_eq!(nearest_name(name, known), nearest, "{name}");
        }
        assert_eq!(nearest_name("limitäö", known), Some("limit"));
        assert_eq!(nearest_name("limitäöü", known), None);
        assert_eq!(nearest_name(&"limit".repeat(1_000_000), known), None);
    }

    #[test]
    fn advice_lists_all_names() {
        assert_eq!(advice("amq", &["amqp", "http"]), "did you mean \"amqp\"? There are amqp, http");
        assert_eq!(advice("kafka", &["amqp", "http"]), "there are amqp, http");
    }

    #[test]
    fn serde_errors_are_translated() {
        for (message, reason) in [
            ("missing field `name`", "name is missing"),
            (
                "unknown field `source`, expected one of `sources`, `types`",
                "there is no setting \"source\"; did you mean \"sources\"? There are sources, types",
            ),
            ("unknown field `x`, expected `name`", "there is no setting \"x\"; there are name"),
            ("unknown field `x`, there are no fields", "there is no setting \"x\"; leave it out"),
            ("unknown variant `drop`, expected `hold` or `count`", "there is no \"drop\"; there are hold, count"),
            ("invalid type: string \"hush\", expected u64", "give a whole number"),
            ("invalid type: string \"hush\", expected struct Templates", "give a table"),
            ("invalid value: integer `1`, expected one of two", "give one of two"),
            ("it is too long", "it is too long"),
        ] {
            assert_eq!(plain_reason(message), reason);
        }
    }
}
