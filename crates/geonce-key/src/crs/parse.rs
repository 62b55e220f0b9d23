//! Reads a declaration of a coordinate system. Only forms that name exactly one EPSG code, or CRS84, are accepted;
//! everything else is refused with what to write instead. Definitions (WKT, PROJ, PROJJSON) are never interpreted.

use super::{Crs, find, table};
use crate::{Code, Error, Result};

/// Declarations longer than this are refused unread.
const DECLARATION_BYTES_MAX: usize = 256;

const SUPPORTED: &str = "supported: 4326, 3857, UTM (32601-32660, 32701-32760, 25828-25838, 26901-26923), MGA \
    (28348-28358, 7846-7859), NAD83 state planes, 2056, 2154, 2157, 2180, 2193, 3006, 3034, 3035, 3067, 5070, 21781, \
    27700, 28992 and others listed in docs/crs.md; or send WGS 84 longitude and latitude";
const WRITE: &str = "write EPSG:<code>, urn:ogc:def:crs:EPSG::<code> or OGC:CRS84";

/// What a well-formed declaration names.
enum Named<'a> {
    Crs84,
    Code(&'a str),
}

/// The system that `declaration` names. Refuses with [`Code::CrsAmbiguous`] or [`Code::CrsUnknown`].
///
/// Axis order is x, y in every form. EPSG:4326 and CRS84 are the same here, longitude first, as `GeoJSON` of 2008 and
/// EWKB are written in practice.
pub fn parse(declaration: &str) -> Result<Crs> {
    if declaration.len() > DECLARATION_BYTES_MAX {
        return Err(refuse(Code::CrsAmbiguous, "the coordinate system's declaration is too long".into(), WRITE));
    }
    // Names are compared without case: both `EPSG` and `epsg` are common, and no two names differ by case alone.
    let lower = declaration.to_ascii_lowercase();
    let code = match named(&lower) {
        Some(Named::Crs84) => Some(4326),
        Some(Named::Code(digits)) => number(digits),
        None => None,
    };
    let Some(code) = code else {
        let message = format!("cannot tell which coordinate system {declaration:?} is");
        return Err(refuse(Code::CrsAmbiguous, message, advice(&lower)));
    };
    find(code)
}

/// Takes the accepted forms apart, lower case.
fn named(lower: &str) -> Option<Named<'_>> {
    if let Some(rest) = lower.strip_prefix("urn:ogc:def:crs:") {
        let mut fields = rest.split(':');
        return authority(fields.next()?, fields.next()?, fields.next()?, fields.next());
    }
    let web = lower.strip_prefix("https://").or_else(|| lower.strip_prefix("http://"));
    if let Some(rest) = web.and_then(|rest| rest.strip_prefix("www.opengis.net/")) {
        if let Some(code) = rest.strip_prefix("gml/srs/epsg.xml#") {
            return Some(Named::Code(code));
        }
        let mut fields = rest.strip_prefix("def/crs/")?.split('/');
        return authority(fields.next()?, fields.next()?, fields.next()?, fields.next());
    }
    match lower.split_once(':') {
        None if lower == "crs84" => Some(Named::Crs84),
        None => Some(Named::Code(lower)),
        // Esri's own numbers, of which only the Web Mercator ones have an equal in the table.
        Some(("esri", code @ ("102100" | "102113"))) => Some(Named::Code(code)),
        Some((name, code)) => authority(name, "", code, None),
    }
}

/// Authority, version and code of a URN or URL. The version is ignored: the table has one meaning per code.
fn authority<'a>(name: &str, version: &str, code: &'a str, rest: Option<&str>) -> Option<Named<'a>> {
    if rest.is_some() || !version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    match (name, code) {
        ("epsg", _) => Some(Named::Code(code)),
        ("ogc", "crs84") => Some(Named::Crs84),
        _ => None,
    }
}

/// A code as EPSG writes it: digits, no sign, no leading zero.
fn number(digits: &str) -> Option<u32> {
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// The refusal of a code that is not in the table.
pub(super) fn unknown(code: u32) -> Error {
    match table::WITH_HEIGHT.binary_search_by_key(&code, |pair| pair.0).ok().and_then(|at| table::WITH_HEIGHT.get(at)) {
        Some((_, part)) => {
            let hint = format!("declare EPSG:{part}; the third coordinate is passed on as it is");
            refuse(Code::CrsAmbiguous, format!("EPSG:{code} has a height, which is not converted"), &hint)
        }
        None => refuse(Code::CrsUnknown, format!("EPSG:{code} is not in the table of coordinate systems"), SUPPORTED),
    }
}

/// What to write instead of something that cannot be read.
fn advice(lower: &str) -> &'static str {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| lower.trim_start().starts_with(prefix));
    if starts(&["wgs84", "wgs 84", "wgs_84", "wgs_1984"]) {
        "write EPSG:4326 or OGC:CRS84; both mean longitude, latitude here"
    } else if starts(&["+proj", "+init", "geogcs", "projcs", "geogcrs", "projcrs", "compd", "boundcrs", "{"]) {
        "definitions are not interpreted; write EPSG:<code>"
    } else if lower.contains("crs84h") || lower.contains('+') {
        "heights are not converted; declare the horizontal system alone"
    } else if lower.bytes().any(|byte| byte.is_ascii_whitespace()) {
        "write EPSG:<code> without spaces"
    } else {
        WRITE
    }
}

fn refuse(code: Code, message: String, hint: &str) -> Error {
    Error::new(code, "", message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_form_names_its_code() {
        for (declaration, code) in [
            ("EPSG:3857", 3857),
            ("epsg:25832", 25832),
            ("urn:ogc:def:crs:EPSG::4326", 4326),
            ("urn:ogc:def:crs:EPSG:9.8:2154", 2154),
            ("URN:OGC:DEF:CRS:EPSG::28992", 28992),
            ("urn:ogc:def:crs:OGC:1.3:CRS84", 4326),
            ("urn:ogc:def:crs:OGC::CRS84", 4326),
            ("OGC:CRS84", 4326),
            ("CRS84", 4326),
            ("http://www.opengis.net/def/crs/EPSG/0/3857", 3857),
            ("https://www.opengis.net/def/crs/EPSG/9.8.15/27700", 27700),
            ("http://www.opengis.net/def/crs/OGC/1.3/CRS84", 4326),
            ("http://www.opengis.net/gml/srs/epsg.xml#4326", 4326),
            ("ESRI:102100", 3857),
            ("EPSG:900913", 3857),
            ("EPSG:3785", 3857),
            ("3857", 3857),
        ] {
            assert_eq!(parse(declaration).unwrap().code(), code, "{declaration}");
        }
    }

    #[test]
    fn what_could_mean_several_things_is_ambiguous() {
        for declaration in [
            "",
            " EPSG:3857",
            "EPSG:3857 ",
            "EPSG: 3857",
            "EPSG:",
            "EPSG:03857",
            "EPSG:+3857",
            "EPSG:-1",
            "EPSG:3857.0",
            "EPSG:99999999999",
            "EPSG:25831-25833",
            "EPSG:28992+5709",
            "EPSG:7415",
            "EPSG:4979",
            "WGS84",
            "wgs 84",
            "CRS84h",
            "OGC:CRS84h",
            "OGC:CRS83",
            "ESRI:54030",
            "IGNF:LAMB93",
            "urn:ogc:def:crs:EPSG::4326:1",
            "urn:ogc:def:crs:EPSG:x:4326",
            "urn:ogc:def:crs:EPSG",
            "urn:ogc:def:crs,crs:EPSG::27700,crs:EPSG::5701",
            "http://www.opengis.net/def/crs/EPSG/0/3857/",
            "http://example.org/def/crs/EPSG/0/3857",
            "+proj=longlat +datum=WGS84",
            "GEOGCS[\"WGS 84\"]",
            "\u{ff13}857",
            "nul\0",
        ] {
            let error = parse(declaration).unwrap_err();
            assert_eq!(error.code(), Code::CrsAmbiguous, "{declaration:?}");
            assert!(error.hint_text().is_some() && error.pointer().is_empty(), "{declaration:?}");
        }
        assert_eq!(parse(&"1".repeat(257)).unwrap_err().code(), Code::CrsAmbiguous);
    }

    #[test]
    fn a_code_outside_the_table_is_unknown() {
        for declaration in ["EPSG:1", "32662", "urn:ogc:def:crs:EPSG::31370", "EPSG:4294967295"] {
            assert_eq!(parse(declaration).unwrap_err().code(), Code::CrsUnknown, "{declaration}");
        }
    }

    #[test]
    fn a_system_with_a_height_names_its_horizontal_part() {
        assert!(parse("EPSG:7415").unwrap_err().hint_text().unwrap().contains("EPSG:28992"));
    }
}
