//! Names of the members of bundles.

use std::borrow::Cow;

use super::platform::paths::is_safe;
use crate::transfer::archive::EntryKind;

/// Characters of the bytes from 0x80 in code page 437, in which zip files without the flag for UTF-8 write names.
const CP437: [char; 128] = [
    'Ç', 'ü', 'é', 'â', 'ä', 'à', 'å', 'ç', 'ê', 'ë', 'è', 'ï', 'î', 'ì', 'Ä', 'Å', 'É', 'æ', 'Æ', 'ô', 'ö', 'ò', 'û',
    'ù', 'ÿ', 'Ö', 'Ü', '¢', '£', '¥', '₧', 'ƒ', 'á', 'í', 'ó', 'ú', 'ñ', 'Ñ', 'ª', 'º', '¿', '⌐', '¬', '½', '¼', '¡',
    '«', '»', '░', '▒', '▓', '│', '┤', '╡', '╢', '╖', '╕', '╣', '║', '╗', '╝', '╜', '╛', '┐', '└', '┴', '┬', '├', '─',
    '┼', '╞', '╟', '╚', '╔', '╩', '╦', '╠', '═', '╬', '╧', '╨', '╤', '╥', '╙', '╘', '╒', '╓', '╫', '╪', '┘', '┌', '█',
    '▄', '▌', '▐', '▀', 'α', 'ß', 'Γ', 'π', 'Σ', 'σ', 'µ', 'τ', 'Φ', 'Θ', 'Ω', 'δ', '∞', 'φ', 'ε', '∩', '≡', '±', '≥',
    '≤', '⌠', '⌡', '÷', '≈', '°', '∙', '·', '√', 'ⁿ', '²', '■', '\u{a0}',
];

/// Returns the path of an entry without `./` before it; `None` if it leaves the bundle. A name that is no UTF-8 is in code
/// page 437.
pub(super) fn name(path: &[u8], kind: EntryKind<'_>) -> Option<String> {
    let text = match std::str::from_utf8(path) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            path.iter().map(|b| b.checked_sub(0x80).map_or(char::from(*b), |at| CP437[usize::from(at)])).collect()
        }
    };
    let mut name = &*text;
    while let Some(rest) = name.strip_prefix("./") {
        name = rest;
    }
    if kind == EntryKind::Folder {
        name = name.strip_suffix('/').unwrap_or(name);
        // The folder of all members.
        if matches!(name, "" | ".") && !path.starts_with(b"/") {
            return Some(String::new());
        }
    }
    // Some programs separate folders by the other slash, so that must not lead outside either.
    (is_safe(name) && is_safe(&name.replace('\\', "/"))).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{EntryKind, name};

    #[test]
    fn names_stay_in_the_bundle() {
        for (path, kind, expected) in [
            ("a/b.csv", EntryKind::File, Some("a/b.csv")),
            ("./a", EntryKind::File, Some("a")),
            ("././a/", EntryKind::Folder, Some("a")),
            ("./", EntryKind::Folder, Some("")),
            ("/", EntryKind::Folder, None),
            ("a/", EntryKind::File, None),
            ("../a", EntryKind::File, None),
            ("./../a", EntryKind::File, None),
            ("/a", EntryKind::File, None),
            ("a\\b", EntryKind::File, Some("a\\b")),
            ("..\\a", EntryKind::File, None),
            ("\\a", EntryKind::File, None),
            ("..", EntryKind::Folder, None),
        ] {
            assert_eq!(name(path.as_bytes(), kind).as_deref(), expected, "{path}");
        }
        assert_eq!(name(b"Codeb\x81ch.csv", EntryKind::File).as_deref(), Some("Codebüch.csv"));
        assert_eq!(name(b"\xe1\xff", EntryKind::File).as_deref(), Some("ß\u{a0}"));
    }
}
