//! Names in zip files, as UTF-8 with slashes.
//!
//! APPNOTE.TXT 4.4.17.1 demands slashes, and appendix D says that a name is in UTF-8 if a flag says so, and otherwise in
//! code page 437. Programs deviate from both: old versions of .NET write backslashes, and many programs write UTF-8
//! without the flag. So the bytes decide first, then the flag, and then the system on which the file was made.

use rawzip::{CreatorSystem, ZipFileHeaderRecord};

/// Upper half of code page 437, as characters.
const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// Systems on which a backslash is a separator (APPNOTE.TXT 4.4.2.2). Programs use two numbers for NTFS.
const WINDOWS: [CreatorSystem; 4] = [CreatorSystem::FAT, CreatorSystem::NTFS, CreatorSystem::MVS, CreatorSystem::VFAT];

/// Returns the name of an entry. `has_slashes` says whether any name of the zip file has a slash.
pub(super) fn zip_name(entry: &ZipFileHeaderRecord<'_>, has_slashes: bool) -> Vec<u8> {
    let is_windows = WINDOWS.contains(&entry.version_made_by().creator_system());
    name(entry.file_path().as_bytes(), is_windows, has_slashes)
}

fn name(raw: &[u8], is_windows: bool, has_slashes: bool) -> Vec<u8> {
    let mut name = if std::str::from_utf8(raw).is_ok() { raw.to_vec() } else { from_cp437(raw).into_bytes() };
    if is_windows || !has_slashes {
        name.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    }
    name
}

/// Decodes code page 437.
fn from_cp437(raw: &[u8]) -> String {
    let upper: Vec<char> = CP437.chars().collect();
    let decode = |byte: &u8| {
        let index = byte.checked_sub(0x80).map(usize::from);
        index.map_or(char::from(*byte), |index| upper.get(index).copied().unwrap_or(char::REPLACEMENT_CHARACTER))
    };
    raw.iter().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::{CP437, name};

    #[test]
    fn names_become_utf8_with_slashes() {
        assert_eq!(CP437.chars().count(), 128);
        for (raw, is_windows, has_slashes, expected) in [
            (&b"a/b"[..], false, true, "a/b"),
            ("brosch\u{fc}re".as_bytes(), false, true, "brosch\u{fc}re"),
            (b"brosch\x81re", false, true, "brosch\u{fc}re"),
            (b"\x81\xff", false, true, "\u{fc}\u{a0}"),
            (b"a\\1.txt", false, false, "a/1.txt"),
            (b"a\\1.txt", true, true, "a/1.txt"),
            // A file of Unix can have a backslash in its name.
            (b"a\\1.txt", false, true, "a\\1.txt"),
        ] {
            assert_eq!(name(raw, is_windows, has_slashes), expected.as_bytes(), "{expected}");
        }
    }
}
