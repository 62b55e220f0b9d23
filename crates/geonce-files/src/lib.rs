//! Reads features from the files that map data comes in: what a layer looks like, then one row at a time, in bounded memory.
//!
//! Every feature of a layer is given once, in the file's order, or the file is refused with a reason. A feature that cannot be
//! read is given as [`Item::Bad`], and its neighbours are read all the same. Knows nothing of keys, stores and destinations.

mod archive;
mod calendar;
mod content;
mod encoding;
mod error;
mod flatgeobuf;
mod geojson;
mod geopackage;
mod geoparquet;
mod number;
mod prj;
mod shapefile;
mod sniff;
mod table;
mod value;
mod window;

pub use error::{Error, Result};

use geonce_key::{Limits, Property, Shape};
use std::path::{Path, PathBuf};

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One GeoJSON document.
    GeoJson,
    /// One GeoJSON document per line, or after record separators.
    GeoJsonSequence,
    /// A shapefile: .shp with its .shx, .dbf, .prj, .cpg; also zipped.
    Shapefile,
    /// A GeoPackage.
    GeoPackage,
    /// A `FlatGeobuf` file.
    FlatGeobuf,
    /// Comma-separated values, with WKT or two columns of ordinates.
    Csv,
    /// A `GeoParquet` file.
    GeoParquet,
}

/// What a reader is told beside the file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How the file is written; found out from its name and first bytes if not given.
    pub format: Option<Format>,
    /// The layer, where a file may have several.
    pub layer: Option<String>,
    /// The encoding of text, where a file does not say (.dbf, .csv), such as `ISO-8859-1`.
    pub encoding: Option<String>,
    /// For CSV: the columns that hold the geometry; found by their names if not given.
    pub columns: Option<GeometryColumns>,
    /// What a geometry may hold at most.
    pub limits: Limits,
}

/// Where a CSV file keeps its geometries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeometryColumns {
    /// As WKT, in this column.
    Wkt(String),
    /// As two numbers: x or longitude, and y or latitude.
    Ordinates(String, String),
}

/// A file's declaration of its coordinate system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declared {
    /// There is none.
    Nothing,
    /// This EPSG code.
    Code(u32),
    /// One that is not known; as it was written, cut short.
    Unknown(String),
}

/// What a layer looks like.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Its coordinate system.
    pub crs: Declared,
    /// What is said of each feature, in the order of [`Row::values`].
    pub fields: Vec<Field>,
    /// How many features it has, where the file says so.
    pub features: Option<u64>,
    /// What a person should know: an encoding that was assumed, a sidecar that is missing.
    pub notices: Vec<String>,
}

/// A field of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: FieldKind,
}

/// What a field's values are. A value may always be [`Property::Null`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// [`Property::Boolean`].
    Boolean,
    /// [`Property::Integer`].
    Integer,
    /// [`Property::Real`], or [`Property::Integer`] for a whole number.
    Real,
    /// [`Property::Text`].
    Text,
    /// [`Property::Text`] such as `2024-05-01`.
    Date,
    /// [`Property::Text`] such as `2024-05-01T10:20:30.5Z`; without an offset where the file has none.
    DateTime,
    /// [`Property::Json`], or any other: values of several kinds.
    Json,
}

/// A feature as its file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its place in the layer, from 1.
    pub number: u64,
    /// Its own id, where the format has one beside the fields (GeoJSON).
    pub id: Option<Property>,
    /// Its geometry, ordinates as written, x before y; none where it is null.
    pub geometry: Option<Shape<f64>>,
    /// A value for each field of the layer.
    pub values: Vec<Property>,
    /// What was written there, where that is a GeoJSON Feature already.
    pub text: Option<Vec<u8>>,
}

/// A feature that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Its place in the layer, from 1.
    pub number: u64,
    /// A stable word for what is wrong.
    pub code: &'static str,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What was written there, cut at [`BAD_BYTES_MAX`].
    pub bytes: Vec<u8>,
}

/// How much is kept of a feature that could not be read.
pub const BAD_BYTES_MAX: usize = 1 << 20;

/// What stands at a place in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A feature.
    Row(Row),
    /// One that could not be read.
    Bad(Bad),
}

/// Reads the features of a layer, in order.
pub trait Rows: Send {
    /// The next one; none at the end. An error means that the rest of the file cannot be read.
    fn next(&mut self) -> Result<Option<Item>>;
}

/// An open file.
pub struct File {
    /// How it is written.
    pub format: Format,
    /// The layer that is read.
    pub layer: Layer,
    /// The files that it consists of, the one that names it first.
    pub parts: Vec<PathBuf>,
    /// Its features.
    pub rows: Box<dyn Rows>,
}

/// What a file holds, whatever it is called and however it is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The digest of it.
    pub sha256: [u8; 32],
    /// How many bytes were read.
    pub bytes: u64,
}

/// Opens a file.
pub fn open(path: &Path, options: &Options) -> Result<File> {
    match sniff::kind(path, options)? {
        sniff::Kind::Zip => archive::open(path, options),
        sniff::Kind::Plain(format) => open_plain(path, format, options),
    }
}

/// Opens a file that is not packed: the only match on formats.
fn open_plain(path: &Path, format: Format, options: &Options) -> Result<File> {
    match format {
        Format::GeoJson | Format::GeoJsonSequence => geojson::open(path, format, options),
        Format::Shapefile => shapefile::open(path, options),
        Format::Csv => table::open(path, options),
        Format::GeoPackage => geopackage::open(path, options),
        Format::FlatGeobuf => flatgeobuf::open(path, options),
        Format::GeoParquet => geoparquet::open(path, options),
    }
}

/// The digest of a file's content. Of a shapefile: of the whole set, in an order of its own, without sidecars that change
/// nothing and without the date in the .dbf; zipped or not.
pub fn content(path: &Path, options: &Options) -> Result<Content> {
    content::digest(path, options)
}
