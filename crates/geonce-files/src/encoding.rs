//! Encodings of text in files that may not be UTF-8: by name (.cpg, options) and by the language driver of a .dbf.

use encoding_rs::{Encoding as Standard, UTF_8, WINDOWS_1252};
use std::borrow::Cow;

/// How text is encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Encoding {
    /// One of the web's.
    Standard(&'static Standard),
    /// ASCII with these characters for the upper half: code pages of DOS, which the web does not have.
    Page(&'static str),
}

#[rustfmt::skip]
const PAGE_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";
#[rustfmt::skip]
const PAGE_850: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜø£Ø×ƒáíóúñÑªº¿®¬½¼¡«»░▒▓│┤ÁÂÀ©╣║╗╝¢¥┐└┴┬├─┼ãÃ╚╔╩╦╠═╬¤ðÐÊËÈıÍÎÏ┘┌█▄¦Ì▀ÓßÔÒõÕµþÞÚÛÙýÝ¯´\u{ad}±‗¾¶§÷¸°¨·¹³²■\u{a0}";
#[rustfmt::skip]
const PAGE_852: &str = "ÇüéâäůćçłëŐőîŹÄĆÉĹĺôöĽľŚśÖÜŤťŁ×čáíóúĄąŽžĘę¬źČş«»░▒▓│┤ÁÂĚŞ╣║╗╝Żż┐└┴┬├─┼Ăă╚╔╩╦╠═╬¤đĐĎËďŇÍÎě┘┌█▄ŢŮ▀ÓßÔŃńňŠšŔÚŕŰýÝţ´\u{ad}˝˛ˇ˘§÷¸°¨˙űŘř■\u{a0}";

/// Labels longer than this name nothing.
const LABEL_BYTES_MAX: usize = 64;

impl Encoding {
    pub(crate) const UTF8: Encoding = Encoding::Standard(UTF_8);
    pub(crate) const LATIN1: Encoding = Encoding::Standard(WINDOWS_1252);

    /// The encoding of this name: the web's names, `UTF8`, `CP1252`, `ANSI 1252`, `OEM 850`, `8859-15`, `88591`.
    pub(crate) fn find(label: &str) -> Option<Encoding> {
        let label = label.trim().trim_end_matches('\0').trim();
        if label.len() > LABEL_BYTES_MAX {
            return None;
        }
        if let Some(found) = Standard::for_label(label.as_bytes()) {
            // UTF-16 is not made of bytes that can be cut at a field's end or a comma.
            return found.is_ascii_compatible().then_some(Encoding::Standard(found));
        }
        let upper = label.to_ascii_uppercase();
        let number = upper.trim_start_matches(|c: char| !c.is_ascii_digit());
        if let Some(part) = number.strip_prefix("8859") {
            let part = part.trim_start_matches(['-', '_', ' ']);
            return Standard::for_label(format!("iso-8859-{part}").as_bytes()).map(Encoding::Standard);
        }
        match &upper[..upper.len() - number.len()] {
            "" | "CP" | "CP-" | "ANSI " | "OEM " | "IBM" | "IBM-" | "WINDOWS-" | "WINDOWS" | "LDID/" => page(number),
            _ => None,
        }
    }

    /// The encoding that a .dbf names by its language driver, or the name of one that is not known here.
    pub(crate) fn of_driver(driver: u8) -> Result<Encoding, String> {
        let number = match driver {
            0x01 | 0x09 | 0x0b | 0x0d | 0x0f | 0x11 | 0x15 | 0x18 | 0x19 | 0x1b => "437",
            0x02 | 0x0a | 0x0e | 0x10 | 0x12 | 0x14 | 0x16 | 0x1a | 0x1d | 0x25 | 0x37 => "850",
            0x03 | 0x57 | 0x58 | 0x59 => "1252",
            0x1f | 0x22 | 0x23 | 0x40 | 0x64 | 0x87 => "852",
            0x26 | 0x65 => "866",
            0x13 | 0x7b => "932",
            0x4d | 0x7a => "936",
            0x4e | 0x79 => "949",
            0x4f | 0x78 => "950",
            0x50 | 0x7c => "874",
            0x7d => "1255",
            0x7e => "1256",
            0xc8 => "1250",
            0xc9 => "1251",
            0xca => "1254",
            0xcb => "1253",
            0xcc => "1257",
            _ => return Err(format!("language driver {driver}")),
        };
        page(number).ok_or_else(|| format!("code page {number}"))
    }

    /// The name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoding::Standard(standard) => standard.name(),
            Encoding::Page(PAGE_437) => "code page 437",
            Encoding::Page(PAGE_850) => "code page 850",
            Encoding::Page(_) => "code page 852",
        }
    }

    /// The text; what cannot be read becomes U+FFFD.
    pub(crate) fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        match self {
            Encoding::Standard(standard) => standard.decode_without_bom_handling(bytes).0,
            Encoding::Page(upper) => Cow::Owned(
                bytes
                    .iter()
                    .map(|&byte| match byte.checked_sub(0x80) {
                        None => char::from(byte),
                        Some(place) => upper.chars().nth(usize::from(place)).unwrap_or('\u{fffd}'),
                    })
                    .collect(),
            ),
        }
    }
}

fn page(number: &str) -> Option<Encoding> {
    let label = match number {
        "437" => return Some(Encoding::Page(PAGE_437)),
        "850" => return Some(Encoding::Page(PAGE_850)),
        "852" => return Some(Encoding::Page(PAGE_852)),
        "65001" => return Some(Encoding::UTF8),
        "866" => "ibm866".to_owned(),
        "932" => "shift_jis".to_owned(),
        "936" => "gbk".to_owned(),
        "949" => "euc-kr".to_owned(),
        "950" => "big5".to_owned(),
        _ => format!("windows-{number}"),
    };
    Standard::for_label(label.as_bytes()).map(Encoding::Standard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_writers_spell_them_are_known() {
        for (label, name) in [
            ("UTF-8", "UTF-8"),
            ("utf8\r\n", "UTF-8"),
            ("65001", "UTF-8"),
            ("ISO-8859-1", "windows-1252"),
            ("88591", "windows-1252"),
            ("ISO 8859-15", "ISO-8859-15"),
            ("8859_2", "ISO-8859-2"),
            ("1252", "windows-1252"),
            ("ANSI 1251", "windows-1251"),
            ("CP1250", "windows-1250"),
            ("OEM 850", "code page 850"),
            ("437", "code page 437"),
            ("GBK", "GBK"),
            ("CP936", "GBK"),
            ("SJIS", "Shift_JIS"),
            ("Big5", "Big5"),
        ] {
            assert_eq!(Encoding::find(label).map(Encoding::name), Some(name), "{label}");
        }
        for label in ["", "klingon", "UTF-16", "CP99999", &"1".repeat(100)] {
            assert_eq!(Encoding::find(label), None, "{label}");
        }
    }

    #[test]
    fn code_pages_have_a_character_for_every_byte() {
        for page in [PAGE_437, PAGE_850, PAGE_852] {
            assert_eq!(page.chars().count(), 128);
        }
        assert_eq!(Encoding::Page(PAGE_437).decode(b"M\x81nchen"), "München");
        assert_eq!(Encoding::Page(PAGE_852).decode(b"\x9d\xa2d\xab"), "Łódź");
    }
}
