//! Which EPSG code the text of a .prj means.
//!
//! Esri's texts name no codes, so that a definition is compared with those of the table of coordinate systems: the same datum,
//! the same projection, the same parameters and the same unit are the same system. What differs in anything is unknown: a
//! datum that is nearly the right one is metres off.

use crate::Declared;
use geonce_key::crs;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// How much of a text that is not known is told.
const SHOWN_CHARACTERS_MAX: usize = 200;
/// How deep a text may be nested; real ones are four deep.
const DEPTH_MAX: usize = 16;
/// The codes of the table lie between these.
const CODES: std::ops::RangeInclusive<u32> = 2_000..=33_000;
const WEB_MERCATOR: u32 = 3857;

/// The system that a text declares.
pub(crate) fn declared(text: &str) -> Declared {
    let text = text.trim().trim_end_matches('\0');
    if let Ok(crs) = crs::parse(text) {
        return Declared::Code(crs.code());
    }
    let node = Parser { text, at: 0 }.node(0);
    let code = node.as_ref().and_then(|node| node.authority().or_else(|| by_definition(node)));
    code.map_or_else(|| Declared::Unknown(text.chars().take(SHOWN_CHARACTERS_MAX).collect()), Declared::Code)
}

/// A node of well-known text: `KEYWORD[value, …]`.
struct Node {
    keyword: String,
    /// Text and numbers, as written.
    values: Vec<String>,
    nodes: Vec<Node>,
}

impl Node {
    fn child(&self, keyword: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.keyword == keyword)
    }

    fn number(&self, place: usize) -> Option<f64> {
        self.values.get(place)?.trim().parse().ok()
    }

    /// The EPSG code that the outermost node names.
    fn authority(&self) -> Option<u32> {
        let node = self.child("AUTHORITY").or_else(|| self.child("ID"))?;
        if !node.values.first()?.eq_ignore_ascii_case("EPSG") {
            return None;
        }
        let code = node.values.get(1)?.trim().parse().ok()?;
        Some(crs::lookup(code).map_or(code, |crs| crs.code()))
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&mut self) -> &str {
        self.at = self.text.len() - self.text[self.at..].trim_start().len();
        &self.text[self.at..]
    }

    fn node(&mut self, depth: usize) -> Option<Node> {
        let rest = self.rest();
        let length = rest.find(['[', '('])?;
        let keyword = rest[..length].trim_end().to_ascii_uppercase();
        if depth > DEPTH_MAX || keyword.is_empty() || !keyword.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return None;
        }
        self.at += length + 1;
        let mut node = Node { keyword, values: Vec::new(), nodes: Vec::new() };
        loop {
            let rest = self.rest();
            if let Some(text) = rest.strip_prefix('"') {
                let length = text.find('"')?;
                node.values.push(text[..length].to_owned());
                self.at += length + 2;
            } else {
                let length = rest.find(['[', '(', ']', ')', ','])?;
                if matches!(rest.as_bytes()[length], b'[' | b'(') {
                    let child = self.node(depth + 1)?;
                    node.nodes.push(child);
                } else {
                    node.values.push(rest[..length].trim().to_owned());
                    self.at += length;
                }
            }
            let rest = self.rest();
            match rest.as_bytes().first()? {
                b',' => self.at += 1,
                b']' | b')' => {
                    self.at += 1;
                    return Some(node);
                }
                _ => return None,
            }
        }
    }
}

/// What makes a system what it is.
#[derive(Debug)]
struct Definition {
    datum: String,
    projection: String,
    parameters: BTreeMap<String, f64>,
    /// Radians or metres.
    unit: f64,
}

impl Definition {
    fn of(root: &Node) -> Option<Definition> {
        let (geographic, projected) = match root.keyword.as_str() {
            "GEOGCS" => (root, None),
            "PROJCS" => (root.child("GEOGCS")?, Some(root)),
            _ => return None,
        };
        // Meridians other than Greenwich, and angles other than degrees, are not in the table.
        let prime = geographic.child("PRIMEM").and_then(|prime| prime.number(1)).unwrap_or(0.0);
        let degrees = near(geographic.child("UNIT")?.number(1)?, std::f64::consts::PI / 180.0);
        if prime != 0.0 || !degrees {
            return None;
        }
        let datum = datum(geographic.child("DATUM")?.values.first()?);
        let Some(root) = projected else {
            return Some(Definition { datum, projection: String::new(), parameters: BTreeMap::new(), unit: 0.0 });
        };
        let projection = projection(root.child("PROJECTION")?.values.first()?);
        let mut parameters = BTreeMap::new();
        for node in root.nodes.iter().filter(|node| node.keyword == "PARAMETER") {
            if let Some(name) = parameter(node.values.first()?) {
                parameters.insert(name, node.number(1)?);
            }
        }
        // What is zero or one by default may be left out.
        parameters.retain(|name, value| (*value - if name == "scale_factor" { 1.0 } else { 0.0 }).abs() > 1e-12);
        Some(Definition { datum, projection, parameters, unit: root.child("UNIT")?.number(1)? })
    }

    fn equals(&self, other: &Definition) -> bool {
        let same = |(a, b): ((&String, &f64), (&String, &f64))| a.0 == b.0 && near(*a.1, *b.1);
        self.datum == other.datum
            && self.projection == other.projection
            && near(self.unit, other.unit)
            && self.parameters.len() == other.parameters.len()
            && self.parameters.iter().zip(&other.parameters).all(same)
    }
}

/// Equal up to the digits that writers of texts print.
fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn letters(name: &str) -> String {
    name.to_ascii_lowercase().replace([' ', '_'], "")
}

/// A datum by the name that the table has for it; Esri abbreviates.
fn datum(name: &str) -> String {
    let name = letters(name.strip_prefix("D_").unwrap_or(name));
    let known = match name.as_str() {
        "worldgeodeticsystem1984" | "wgs84" => "wgs1984",
        "etrs1989" => "europeanterrestrialreferencesystem1989",
        "northamerican1983" => "northamericandatum1983",
        "osgb1936" => "ordnancesurveyofgreatbritain1936",
        "gda1994" => "geocentricdatumofaustralia1994",
        "gda2020" => "geocentricdatumofaustralia2020",
        "nzgd2000" => "newzealandgeodeticdatum2000",
        "rgf1993" | "reseaugeodesiquefrancais1993" => "reseaugeodesiquefrancais1993v1",
        "islandsnetwork1993" => "islandsnet1993",
        "latvia1992" => "latviangeodeticcoordinatesystem1992",
        "lithuania1994" => "lithuania1994etrs89",
        "slovenia1996" => "sloveniageodeticdatum1996",
        _ => return name,
    };
    known.to_owned()
}

fn projection(name: &str) -> String {
    let name = letters(name);
    let known = match name.as_str() {
        "lambertconformalconic2sp" => "lambertconformalconic",
        "albersconicequalarea" => "albers",
        "doublestereographic" => "obliquestereographic",
        _ => return name,
    };
    known.to_owned()
}

/// A parameter by one name; none for those that follow from the projection.
fn parameter(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase().replace(' ', "_");
    Some(match name.as_str() {
        "latitude_of_center" => "latitude_of_origin".to_owned(),
        "longitude_of_center" => "central_meridian".to_owned(),
        "rectified_grid_angle" => return None,
        _ => name,
    })
}

fn by_definition(root: &Node) -> Option<u32> {
    let definition = Definition::of(root)?;
    if definition.projection == "mercatorauxiliarysphere" {
        let plain = definition.parameters.is_empty() && definition.datum == "wgs1984" && near(definition.unit, 1.0);
        return plain.then_some(WEB_MERCATOR);
    }
    let equal: Vec<u32> =
        known().iter().filter(|(_, known)| known.equals(&definition)).map(|(code, _)| *code).collect();
    // Some definitions have several codes, which mean the same; the name chooses the one that a person expects.
    let name = letters(root.values.first()?);
    let named = |code: &&u32| crs::lookup(**code).is_some_and(|crs| name.contains(&own_name(crs.name())));
    equal.iter().find(named).or(equal.first()).copied()
}

/// What a system is called on its datum: `utmzone32n` of `ETRS89 / UTM zone 32N`.
fn own_name(name: &str) -> String {
    let own = name.rsplit('/').next().unwrap_or(name);
    letters(own.split('(').next().unwrap_or(own))
}

/// The definitions of the table, made when the first text asks for them.
fn known() -> &'static [(u32, Definition)] {
    static KNOWN: OnceLock<Vec<(u32, Definition)>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let definition = |code: u32| {
            let crs = crs::lookup(code).filter(|crs| crs.code() == code && code != WEB_MERCATOR)?;
            let text = crs.wkt()?;
            Some((code, Definition::of(&Parser { text: &text, at: 0 }.node(0)?)?))
        };
        CODES.filter_map(definition).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_table_are_their_own_codes_with_and_without_authority() {
        let mut checked = 0;
        for crs in CODES.filter_map(crs::lookup) {
            let text = crs.wkt().unwrap();
            assert_eq!(declared(&text), Declared::Code(crs.code()));
            checked += 1;
            if crs.code() != WEB_MERCATOR {
                let bare = text.replace("AUTHORITY[\"EPSG\",", "AUTHORITY[\"NONE\",");
                let Declared::Code(found) = declared(&bare) else { panic!("{bare}") };
                assert_eq!(found, crs.code(), "{bare}");
            }
        }
        assert!(checked > 300, "{checked}");
    }

    #[test]
    fn what_is_nearly_a_known_system_is_unknown() {
        let text = r#"PROJCS["x",GEOGCS["GCS_ETRS_1989",DATUM["D_ETRS_1989",SPHEROID["GRS_1980",6378137.0,298.257222101]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],PARAMETER["False_Easting",500000.0],PARAMETER["False_Northing",0.0],PARAMETER["Central_Meridian",9.0],PARAMETER["Scale_Factor",0.9996],PARAMETER["Latitude_Of_Origin",0.0],UNIT["Meter",1.0]]"#;
        assert_eq!(declared(text), Declared::Code(25832));
        for (from, to) in [
            ("D_ETRS_1989", "D_European_1950"),
            ("500000.0", "500001.0"),
            ("0.9996", "0.9999"),
            ("\"Meter\",1.0", "\"Foot\",0.3048"),
            ("Transverse_Mercator", "Mercator"),
            ("\"Greenwich\",0.0", "\"Paris\",2.33"),
            ("PROJCS", "LOCAL_CS"),
        ] {
            assert!(matches!(declared(&text.replacen(from, to, 1)), Declared::Unknown(_)), "{to}");
        }
        let named = format!("{},AUTHORITY[\"EPSG\",\"31370\"]]", text.strip_suffix(']').unwrap());
        assert_eq!(declared(&named), Declared::Code(31370));
    }

    #[test]
    fn no_text_makes_it_panic() {
        for text in ["", "[", "A[", "A[\"", "A[\"b\"", "A[1,B[2]", "ü[é]", "A[]", "A[,]", "PROJCS[]", "GEOGCS[\"\0\"]"]
        {
            assert!(matches!(declared(text), Declared::Unknown(_)), "{text}");
        }
        assert!(matches!(declared(&"A[".repeat(10_000)), Declared::Unknown(_)));
    }
}
