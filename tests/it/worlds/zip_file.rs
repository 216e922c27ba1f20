//! Zip files as different programs write them.

use flate2::Crc;

/// Names as a program writes them into a zip file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// UTF-8, with the flag for that.
    Utf8,
    /// UTF-8 without the flag, as many programs on Unix write.
    Utf8WithoutFlag,
    /// Code page 437 and slashes.
    Cp437,
    /// Code page 437 and backslashes, as old versions of .NET write on Windows.
    Backslashes,
}

/// Returns a zip file with stored entries (APPNOTE.TXT 4.3).
pub(crate) fn zip(entries: &[(&str, Vec<u8>)], names: Names) -> Vec<u8> {
    let (mut file, mut list) = (Vec::new(), Vec::new());
    for (path, content) in entries {
        let path = if names == Names::Backslashes { path.replace('/', "\\") } else { (*path).to_owned() };
        let name = match names {
            Names::Utf8 | Names::Utf8WithoutFlag => path.into_bytes(),
            Names::Cp437 | Names::Backslashes => path.chars().map(cp437).collect(),
        };
        let (system, flags) = match names {
            Names::Utf8 => (3, 0x800),
            Names::Utf8WithoutFlag => (3, 0),
            Names::Cp437 | Names::Backslashes => (0, 0),
        };
        let mut crc = Crc::new();
        crc.update(content);
        let size = u32::try_from(content.len()).unwrap();
        let numbers = |version: &[u16]| {
            let mut header: Vec<u8> = version.iter().flat_map(|number| number.to_le_bytes()).collect();
            for number in [20_u16, flags, 0, 0, 0x21] {
                header.extend(number.to_le_bytes());
            }
            for number in [crc.sum(), size, size] {
                header.extend(number.to_le_bytes());
            }
            header.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
            header.extend([0, 0]);
            header
        };
        let offset = u32::try_from(file.len()).unwrap();
        file.extend(b"PK\x03\x04");
        file.extend(numbers(&[]));
        file.extend(&name);
        file.extend(content);
        list.extend(b"PK\x01\x02");
        list.extend(numbers(&[system << 8 | 20]));
        list.extend([0; 10]);
        list.extend(offset.to_le_bytes());
        list.extend(&name);
    }
    let (offset, length) = (u32::try_from(file.len()).unwrap(), u32::try_from(list.len()).unwrap());
    let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
    file.extend(list);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([count, count].concat());
    file.extend([length.to_le_bytes(), offset.to_le_bytes()].concat());
    file.extend([0, 0]);
    file
}

fn cp437(character: char) -> u8 {
    match character {
        'ü' => 0x81,
        'é' => 0x82,
        'ß' => 0xE1,
        ascii => u8::try_from(ascii).unwrap(),
    }
}
