//! Files with environment variables, as systemd reads an `EnvironmentFile` (systemd.exec(5)).

use std::{ffi::OsString, fs::File, io::Read, path::Path};

/// Maximum size of a file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the variables of a file. Of several values of one variable, the last counts.
///
/// # Errors
/// Fails if the file cannot be read, is too large, or is not UTF-8. The error does not repeat its content.
pub(super) fn read(path: &Path) -> Result<Vec<(OsString, OsString)>, String> {
    let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let wrong = |reason: String| format!("cannot read the environment file {}: {reason}", shown.display());
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(wrong(error.to_string())),
        Ok(_) if text.len() as u64 > MAX_BYTES => Err(wrong(format!("it is larger than {MAX_BYTES} bytes"))),
        Ok(_) => Ok(parse(&text)),
    }
}

/// Parses lines `NAME=VALUE`. As systemd does, it ignores empty lines, comments, and lines without `=` or with a name that
/// no variable can have.
fn parse(text: &str) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let end = line.find('\n').unwrap_or(line.len());
        if line.starts_with(['#', ';']) {
            rest = &line[end..];
            continue;
        }
        let Some(at) = line[..end].find('=') else {
            rest = &line[end..];
            continue;
        };
        let name = line[..at].trim();
        let (value, left) = value(&line[at + 1..]);
        rest = left;
        if is_name(name) {
            variables.retain(|(other, _)| other != name);
            variables.push((name.into(), value.into()));
        }
    }
    variables
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_part) && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// Reads a value until the end of its line, and returns the rest. Parts in quotation marks may contain line breaks. Outside
/// them, a backslash keeps the next character, or joins the next line.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    // Length up to the last character that is not white space outside quotation marks.
    let mut kept = 0;
    let mut letters = text.char_indices();
    let mut quote = None;
    while let Some((at, letter)) = letters.next() {
        match (quote, letter) {
            (None, '\n') => {
                value.truncate(kept);
                return (value, &text[at..]);
            }
            (None, '"' | '\'') => {
                quote = Some(letter);
                kept = value.len();
            }
            (Some(mark), _) if mark == letter => {
                quote = None;
                kept = value.len();
            }
            (None, '\\') => match letters.next() {
                Some((_, '\n')) | None => {}
                Some((_, next)) => {
                    value.push(next);
                    kept = value.len();
                }
            },
            (Some('"'), '\\') => match letters.next() {
                Some((_, '\n')) | None => {}
                Some((_, next)) => {
                    if !matches!(next, '"' | '\\' | '`' | '$') {
                        value.push('\\');
                    }
                    value.push(next);
                }
            },
            (None, ' ' | '\t' | '\r') if value.is_empty() && kept == 0 => {}
            (_, letter) => {
                value.push(letter);
                if quote.is_some() || !letter.is_ascii_whitespace() {
                    kept = value.len();
                }
            }
        }
    }
    value.truncate(kept);
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn files_are_read_as_systemd_reads_them() {
        for (text, expected) in [
            ("A=1\nB=two words \n", &[("A", "1"), ("B", "two words")][..]),
            ("# A=1\n; B=2\n\n  C = 3\r\n", &[("C", "3")]),
            ("A=\"a b \"\nB='x \"y\" $z \\n'\n", &[("A", "a b "), ("B", "x \"y\" $z \\n")]),
            ("A=\"\\\"q\\\" \\$x \\n\"\n", &[("A", "\"q\" $x \\n")]),
            ("A=a\\ b\\\\c \\\nd\nB=2", &[("A", "a b\\c d"), ("B", "2")]),
            ("A=\"line\nbreak\"\nB=", &[("A", "line\nbreak"), ("B", "")]),
            ("no assignment\n1A=x\nA-B=x\n=x\nA=1\nA=2", &[("A", "2")]),
            ("A=amqp://me:p#w=d@h/v # part of it", &[("A", "amqp://me:p#w=d@h/v # part of it")]),
            ("A=x\"y z\"w", &[("A", "xy zw")]),
        ] {
            let variables = parse(text);
            let read: Vec<_> =
                variables.iter().map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap())).collect();
            assert_eq!(read, expected, "{text:?}");
        }
    }
}
