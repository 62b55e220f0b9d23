//! Systems in well-known text, version 1 (OGC 01-009), for formats that want to carry a definition.
//!
//! Names and codes are EPSG's. Axes are left out: coordinates are x, y here whatever order the authority prefers, and
//! that is what a text without axes means.

use super::datum::{AIRY, BESSEL, Datum, Ellipsoid, GRS80, WGS84, WGS84_DATUM};
use super::row::{Coordinates, FOOT, METRE, Method, Projection, Row};
use super::table;

/// A datum as EPSG names it: the geographic system on it, and itself, each with its code.
struct Names {
    datum: &'static Datum,
    system: (&'static str, u32),
    itself: (&'static str, u32),
}

const fn names(datum: &'static Datum, system: (&'static str, u32), itself: (&'static str, u32)) -> Names {
    Names { datum, system, itself }
}

#[rustfmt::skip]
static NAMES: [Names; 20] = [
    names(&WGS84_DATUM, ("WGS 84", 4326), ("WGS_1984", 6326)),
    names(&table::CH1903, ("CH1903", 4149), ("CH1903", 6149)),
    names(&table::CH1903_PLUS, ("CH1903+", 4150), ("CH1903+", 6150)),
    names(&table::NZGD2000, ("NZGD2000", 4167), ("New_Zealand_Geodetic_Datum_2000", 6167)),
    names(&table::RGF93, ("RGF93 v1", 4171), ("Reseau_Geodesique_Francais_1993_v1", 6171)),
    names(&table::IRENET95, ("IRENET95", 4173), ("IRENET95", 6173)),
    names(&table::EST97, ("EST97", 4180), ("Estonia_1997", 6180)),
    names(&table::ETRS89, ("ETRS89", 4258), ("European_Terrestrial_Reference_System_1989", 6258)),
    names(&table::NAD83, ("NAD83", 4269), ("North_American_Datum_1983", 6269)),
    names(&table::OSGB36, ("OSGB36", 4277), ("Ordnance_Survey_of_Great_Britain_1936", 6277)),
    names(&table::GDA94, ("GDA94", 4283), ("Geocentric_Datum_of_Australia_1994", 6283)),
    names(&table::AMERSFOORT, ("Amersfoort", 4289), ("Amersfoort", 6289)),
    names(&table::SWEREF99, ("SWEREF99", 4619), ("SWEREF99", 6619)),
    names(&table::ISN93, ("ISN93", 4659), ("Islands_Net_1993", 6659)),
    names(&table::LKS92, ("LKS-92", 4661), ("Latvian_geodetic_coordinate_system_1992", 6661)),
    names(&table::LKS94, ("LKS94", 4669), ("Lithuania_1994_ETRS89", 6126)),
    names(&table::HTRS96, ("HTRS96", 4761), ("Croatian_Terrestrial_Reference_System", 6761)),
    names(&table::SLOVENIA1996, ("Slovenia 1996", 4765), ("Slovenia_Geodetic_Datum_1996", 6765)),
    names(&table::GDA2020, ("GDA2020", 7844), ("Geocentric_Datum_of_Australia_2020", 1168)),
    names(&table::ETRF2000_PL, ("ETRF2000-PL", 9702), ("ETRF2000_Poland", 1305)),
];

static ELLIPSOIDS: [(&Ellipsoid, &str, &str, u32); 4] = [
    (&WGS84, "WGS 84", "6378137,298.257223563", 7030),
    (&GRS80, "GRS 1980", "6378137,298.257222101", 7019),
    (&BESSEL, "Bessel 1841", "6377397.155,299.1528128", 7004),
    (&AIRY, "Airy 1830", "6377563.396,299.3249646", 7001),
];

/// Well-known text has no word for an ellipsoid's coordinates on a sphere; GDAL and QGIS know this one by its extension.
const WEB_MERCATOR: &str = r#"PROJECTION["Mercator_1SP"],PARAMETER["central_meridian",0],PARAMETER["scale_factor",1],PARAMETER["false_easting",0],PARAMETER["false_northing",0]"#;
const WEB_MERCATOR_EXTENSION: &str = r#",EXTENSION["PROJ4","+proj=merc +a=6378137 +b=6378137 +lat_ts=0 +lon_0=0 +x_0=0 +y_0=0 +k=1 +units=m +nadgrids=@null +wktext +no_defs"]"#;

/// The text of a row; `None` for a datum that has no name here.
pub(super) fn write(row: &Row) -> Option<String> {
    let names = NAMES.iter().find(|names| std::ptr::eq(names.datum, row.datum))?;
    let (_, ellipsoid, axes, code) = ELLIPSOIDS.iter().find(|(known, ..)| std::ptr::eq(*known, row.datum.ellipsoid))?;
    let spheroid = format!(r#"SPHEROID["{ellipsoid}",{axes},{}]"#, authority(*code));
    let geographic = format!(
        r#"GEOGCS["{}",DATUM["{}",{spheroid},{}],PRIMEM["Greenwich",0,{}],UNIT["degree",0.0174532925199433,{}],{}]"#,
        names.system.0,
        names.itself.0,
        authority(names.itself.1),
        authority(8901),
        authority(9122),
        authority(names.system.1),
    );
    let (projection, extension) = match &row.coordinates {
        Coordinates::LonLat => return Some(geographic),
        Coordinates::WebMercator => (WEB_MERCATOR.to_owned(), WEB_MERCATOR_EXTENSION),
        Coordinates::Map(projection) => (write_projection(projection, row.unit), ""),
    };
    let unit = write_unit(row.unit);
    Some(format!(r#"PROJCS["{}",{geographic},{projection},{unit}{extension},{}]"#, row.name, authority(row.code)))
}

fn authority(code: u32) -> String {
    format!(r#"AUTHORITY["EPSG","{code}"]"#)
}

fn write_unit(unit: f64) -> String {
    let (name, size, code) = if unit == METRE {
        ("metre", "1", 9001)
    } else if unit == FOOT {
        ("foot", "0.3048", 9002)
    } else {
        ("US survey foot", "0.304800609601219", 9003)
    };
    format!(r#"UNIT["{name}",{size},{}]"#, authority(code))
}

fn write_projection(projection: &Projection, unit: f64) -> String {
    let origin = projection.origin;
    let natural = |name: &str| {
        let (lat, lon) = (number(origin.lat), number(origin.lon));
        format!(r#"PROJECTION["{name}"],PARAMETER["latitude_of_origin",{lat}],PARAMETER["central_meridian",{lon}]"#)
    };
    let centre = |name: &str| {
        let (lat, lon) = (number(origin.lat), number(origin.lon));
        format!(r#"PROJECTION["{name}"],PARAMETER["latitude_of_center",{lat}],PARAMETER["longitude_of_center",{lon}]"#)
    };
    let scaled = |text: String, scale: f64| format!(r#"{text},PARAMETER["scale_factor",{}]"#, number(scale));
    let with_parallels = |text: String, [first, second]: [f64; 2]| {
        let (first, second) = (number(first), number(second));
        format!(r#"{text},PARAMETER["standard_parallel_1",{first}],PARAMETER["standard_parallel_2",{second}]"#)
    };
    let text = match projection.method {
        Method::TransverseMercator { scale } => scaled(natural("Transverse_Mercator"), scale),
        Method::LambertConformal { parallels } => with_parallels(natural("Lambert_Conformal_Conic_2SP"), parallels),
        Method::Albers { parallels } => with_parallels(centre("Albers_Conic_Equal_Area"), parallels),
        Method::LambertAzimuthal => centre("Lambert_Azimuthal_Equal_Area"),
        Method::Stereographic { scale } => scaled(natural("Oblique_Stereographic"), scale),
        Method::Swiss => {
            let text = centre("Hotine_Oblique_Mercator_Azimuth_Center");
            scaled(format!(r#"{text},PARAMETER["azimuth",90],PARAMETER["rectified_grid_angle",90]"#), 1.0)
        }
    };
    // False origins are in the unit of the system; EPSG gives none with more than four decimals.
    let [x, y] = [origin.x, origin.y].map(|metres| trimmed(&format!("{:.4}", metres / unit)));
    format!(r#"{text},PARAMETER["false_easting",{x}],PARAMETER["false_northing",{y}]"#)
}

/// Fifteen significant digits: what is beyond them is the rounding of degrees from minutes and seconds.
fn number(value: f64) -> String {
    let digits = format!("{:.0}", value.abs().trunc()).len();
    trimmed(&format!("{value:.*}", 15_usize.saturating_sub(digits)))
}

fn trimmed(text: &str) -> String {
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}
