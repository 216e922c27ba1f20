//! The name of a file in the header `Content-Disposition` (RFC 6266).

use percent_encoding::percent_decode_str;

use super::platform::paths::is_safe;

/// Returns the name of the file: `filename*` before `filename`, without folders; `None` if there is none that is safe.
pub(super) fn file_name(header: &str) -> Option<String> {
    let (mut plain, mut extended) = (None, None);
    let mut rest = header.split_once(';')?.1;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = value(after.trim_start());
        match name.trim().to_ascii_lowercase().as_str() {
            "filename" => plain = plain.or(Some(value)),
            "filename*" => extended = extended.or_else(|| decoded(&value)),
            _ => {}
        }
        rest = after.split_once(';').map_or("", |(_, rest)| rest);
    }
    let name = extended.or(plain)?;
    // A path of the depositor's machine is none of the dataset.
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    is_safe(name).then(|| name.to_owned())
}

/// Returns a value, which may be quoted, and the rest of the text.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim().to_owned(), &text[end..]);
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, c) in quoted.char_indices() {
        match c {
            // Windows paths are sent without escapes, so only these two characters are escaped.
            '"' | '\\' if is_escaped => {
                value.push(c);
                is_escaped = false;
            }
            '"' => return (value, &quoted[at + 1..]),
            '\\' => is_escaped = true,
            c => {
                if std::mem::take(&mut is_escaped) {
                    value.push('\\');
                }
                value.push(c);
            }
        }
    }
    (value, "")
}

/// Decodes an extended value (RFC 8187): `UTF-8'LANGUAGE'PERCENT-ENCODED`.
fn decoded(text: &str) -> Option<String> {
    let (charset, rest) = text.split_once('\'')?;
    let bytes: Vec<u8> = percent_decode_str(rest.split_once('\'')?.1).collect();
    if charset.eq_ignore_ascii_case("utf-8") {
        return str::from_utf8(&bytes).ok().map(str::to_owned);
    }
    charset.eq_ignore_ascii_case("iso-8859-1").then(|| bytes.into_iter().map(char::from).collect())
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn names_are_read_from_all_forms() {
        for (header, name) in [
            ("attachment; filename=\"data.csv\"", Some("data.csv")),
            ("attachment; filename=data.csv", Some("data.csv")),
            ("attachment;FILENAME = data.csv ; x=y", Some("data.csv")),
            ("attachment; filename*=UTF-8''Codeb%C3%BCch.pdf", Some("Codebüch.pdf")),
            ("attachment; filename=\"x.pdf\"; filename*=UTF-8'en'y%20z.pdf", Some("y z.pdf")),
            ("attachment; filename*=iso-8859-1''%fc.csv; filename=u.csv", Some("ü.csv")),
            ("attachment; filename*=koi8-r''%fc.csv; filename=u.csv", Some("u.csv")),
            ("attachment; filename=\"a;b=c.csv\"; size=3", Some("a;b=c.csv")),
            ("attachment; filename=\"a\\\"b.csv\"", Some("a\"b.csv")),
            ("attachment; filename=\"../../etc/passwd\"", Some("passwd")),
            ("attachment; filename=\"C:\\data\\a.csv\"", Some("a.csv")),
            ("attachment; filename=\"..\"", None),
            ("attachment; filename=\"\"", None),
            ("attachment", None),
            ("inline; x=y", None),
        ] {
            assert_eq!(file_name(header).as_deref(), name, "{header}");
        }
    }
}
