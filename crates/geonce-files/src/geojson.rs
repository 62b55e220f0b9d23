//! GeoJSON documents and sequences, read twice: the first pass finds the fields and the coordinate system, the second gives
//! the rows. Holds one feature at a time.
//!
//! Without a `crs` member the coordinate system is WGS 84, because RFC 7946 says so. A document that ends too early is
//! refused by the first pass, before anybody has seen a row of it.

use crate::sniff::{self, unreadable};
use crate::{
    BAD_BYTES_MAX, Bad, Declared, Error, Field, FieldKind, File, Format, Item, Layer, Options, Result, Row, Rows,
};
use geonce_key::split::{self, Broken, Collection, Splitter, collection_in};
use geonce_key::{Code, Form, Input, Limits, Policy, Property, Reader};
use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Bytes asked for at once.
const PIECE_BYTES: usize = 256 << 10;

/// Different properties that the features of a file may have: no destination has more columns.
pub(crate) const FIELDS_MAX: usize = 1_500;

const WGS84: u32 = 4326;

/// Opens a document or a sequence.
pub(crate) fn open(path: &Path, format: Format, options: &Options) -> Result<File> {
    let policy = Policy { limits: options.limits.clone(), approximate_crs: true, ..Policy::default() };
    let mut reader = Reader::new(&policy, None).map_err(|error| Error::new("internal", error.to_string()))?;
    let mut first = Survey::default();
    let mut stream = Stream::open(path, format, &options.limits, None)?;
    while let Some(found) = stream.next()? {
        first.take(&stream, found, &mut reader)?;
    }
    if stream.blank && format == Format::GeoJson {
        return Err(Error::new("file_empty", format!("{} is empty", path.display())));
    }
    let (layer, outer) = first.layer(path, stream.splitter.collection())?;
    let format = if first.alone > 1 { Format::GeoJsonSequence } else { format };
    let rows = Features {
        stream: Stream::open(path, format, &options.limits, Some(stream.splitter.collection()))?,
        reader,
        places: layer.fields.iter().enumerate().map(|(i, field)| (field.name.clone(), i)).collect(),
        crs: outer,
        number: 0,
    };
    Ok(File { format, layer, parts: vec![path.to_owned()], rows: Box::new(rows) })
}

/// A file that is being divided into features.
struct Stream {
    path: PathBuf,
    file: fs::File,
    splitter: Splitter,
    limits: Limits,
    piece: Vec<u8>,
    begun: bool,
    /// Whether nothing but white space was read.
    blank: bool,
    ended: bool,
    /// A line of a sequence that is a collection of its own.
    inner: Option<Splitter>,
}

/// What stands at a place of the stream.
enum Found {
    /// A feature, in the line's own collection where `inner`.
    Feature { item: split::Item, inner: bool },
    /// Something that is none, and why.
    Refused { item: Option<split::Item>, error: geonce_key::Error },
}

impl Stream {
    fn open(path: &Path, format: Format, limits: &Limits, known: Option<Collection>) -> Result<Stream> {
        let file = sniff::open(path)?;
        let division = match format {
            Format::GeoJsonSequence if !starts_with_separator(path)? => split::Format::Lines,
            _ => split::Format::Auto,
        };
        let mut splitter = Splitter::new(division, false, limits);
        if let Some(known) = known {
            splitter = splitter.knowing(known);
        }
        let (limits, piece) = (limits.clone(), vec![0; PIECE_BYTES]);
        Ok(Stream {
            path: path.to_owned(),
            file,
            splitter,
            limits,
            piece,
            begun: false,
            blank: true,
            ended: false,
            inner: None,
        })
    }

    fn next(&mut self) -> Result<Option<Found>> {
        loop {
            if let Some(inner) = &mut self.inner {
                match inner.next() {
                    Some(Ok(item)) => return Ok(Some(Found::Feature { item, inner: true })),
                    Some(Err(Broken { error, .. })) => return Ok(Some(Found::Refused { item: None, error })),
                    None => self.inner = None,
                }
            }
            match self.splitter.next() {
                Some(Ok(item)) if item.form != Form::Json => return Err(self.not_json()),
                Some(Ok(item)) if item.pointer.is_empty() => {
                    match collection_in(self.splitter.bytes(&item), &self.limits) {
                        Ok(None) => return Ok(Some(Found::Feature { item, inner: false })),
                        Ok(inner) => self.inner = inner,
                        Err(error) => return Ok(Some(Found::Refused { item: Some(item), error })),
                    }
                }
                Some(Ok(item)) => return Ok(Some(Found::Feature { item, inner: false })),
                Some(Err(Broken { error, .. })) => return Ok(Some(Found::Refused { item: None, error })),
                None if self.ended => return Ok(None),
                None => self.read_piece()?,
            }
        }
    }

    fn bytes(&self, item: &split::Item, inner: bool) -> &[u8] {
        match &self.inner {
            Some(splitter) if inner => splitter.bytes(item),
            _ => self.splitter.bytes(item),
        }
    }

    fn read_piece(&mut self) -> Result<()> {
        let count = loop {
            match self.file.read(&mut self.piece) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&self.path, &error)),
            }
        };
        if count == 0 {
            self.ended = true;
            self.splitter.finish();
            return Ok(());
        }
        let mut bytes = &self.piece[..count];
        if !std::mem::replace(&mut self.begun, true) {
            // Editors on Windows write a byte order mark, which says nothing in UTF-8.
            bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        }
        self.blank &= bytes.iter().all(u8::is_ascii_whitespace);
        self.splitter.feed(bytes);
        Ok(())
    }

    fn not_json(&self) -> Error {
        Error::new("format_wrong", format!("{} does not hold GeoJSON", self.path.display()))
    }

    /// The refusal of the whole file because of this.
    fn refuse(&self, error: &geonce_key::Error) -> Error {
        whole(&self.path, error)
    }
}

/// The refusal of a whole file because of an error in it.
fn whole(path: &Path, error: &geonce_key::Error) -> Error {
    let place = if error.pointer().is_empty() { String::new() } else { format!(" at {}", error.pointer()) };
    let refused = Error::new(error.code().as_str(), format!("{}: {}{place}", path.display(), error.message()));
    match error.hint_text() {
        Some(hint) => refused.hint(hint),
        None => refused,
    }
}

/// Whether the document around its features is meant, not a single one of them.
fn is_around(error: &geonce_key::Error) -> bool {
    error.code() == Code::JsonIncomplete && error.pointer().starts_with("/features/")
        || !error.pointer().starts_with("/features/")
}

/// Whether a sequence is one after RFC 8142.
fn starts_with_separator(path: &Path) -> Result<bool> {
    let mut first = Vec::new();
    sniff::open(path)?.take(16).read_to_end(&mut first).map_err(|error| unreadable(path, &error))?;
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&first);
    Ok(text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&0x1e))
}

/// What a first pass has found.
#[derive(Default)]
struct Survey {
    fields: Fields,
    features: u64,
    /// Features that are no part of a collection.
    alone: u64,
    /// A document that could not be read, while it is the only one.
    failed: Option<geonce_key::Error>,
    foreign: Option<String>,
    /// The coordinate system that features declare by themselves, and whether some declare none.
    declared: Option<u32>,
    undeclared: bool,
    unknown_crs: Option<String>,
}

impl Survey {
    fn take(&mut self, stream: &Stream, found: Found, reader: &mut Reader) -> Result<()> {
        let (item, inner) = match found {
            Found::Feature { item, inner } => (item, inner),
            Found::Refused { item: None, error } if is_around(&error) && stream.inner.is_none() => {
                return self.take_around(stream, &error);
            }
            Found::Refused { item, error } => {
                self.features += 1;
                self.alone += u64::from(item.is_some());
                self.failed = Some(error);
                return Ok(());
            }
        };
        self.features += 1;
        let alone = item.pointer.is_empty();
        self.alone += u64::from(alone);
        let fields = &mut self.fields;
        match reader.outline(stream.bytes(&item, inner), |name, value| fields.take(name, &value)) {
            Ok(outline) => {
                let outer = if inner { stream.inner.as_ref().and_then(|inner| inner.collection().crs) } else { None };
                self.take_crs(stream, outline.crs.or(outer), alone || inner)?;
                if self.foreign.is_none() {
                    self.foreign = outline.foreign;
                }
            }
            Err(error) if error.code() == Code::JsonIncomplete && alone && stream.ended => {
                return Err(stream.refuse(&error).hint("the file was cut short: fetch it again"));
            }
            Err(error) => self.failed = Some(error),
        }
        if self.fields.found.len() > FIELDS_MAX {
            let message =
                format!("{}: features have more than {FIELDS_MAX} different properties", stream.path.display());
            return Err(Error::new("fields_many", message));
        }
        Ok(())
    }

    fn take_around(&mut self, stream: &Stream, error: &geonce_key::Error) -> Result<()> {
        match error.code() {
            // The second pass knows it from the beginning.
            Code::CrsAfterFeatures => Ok(()),
            Code::CrsUnknown | Code::CrsAmbiguous => {
                self.unknown_crs = Some(error.message().to_owned());
                Ok(())
            }
            Code::JsonIncomplete => Err(stream.refuse(error).hint("the file was cut short: fetch it again")),
            _ => Err(stream.refuse(error)),
        }
    }

    /// Features of a layer are in one coordinate system; those outside a collection say so themselves.
    fn take_crs(&mut self, stream: &Stream, declared: Option<u32>, alone: bool) -> Result<()> {
        self.undeclared |= declared.is_none() && alone;
        let others = declared.is_some() && self.declared.is_some_and(|earlier| Some(earlier) != declared);
        self.declared = self.declared.or(declared);
        if others || (alone && self.undeclared && self.declared.is_some_and(|code| code != WGS84)) {
            let message = format!("{}: features declare different coordinate systems", stream.path.display());
            return Err(Error::new("crs_conflict", message).hint("a layer has one: divide the file first"));
        }
        Ok(())
    }

    /// The layer, and the code that features have where they declare none.
    fn layer(&self, path: &Path, collection: Collection) -> Result<(Layer, Option<u32>)> {
        if let (Some(error), 1, 1) = (&self.failed, self.features, self.alone) {
            return Err(whole(path, error));
        }
        let mut notices = Vec::new();
        if let Some(name) = &self.foreign {
            notices
                .push(format!("members of features beside geometry, properties and id are left out, such as {name:?}"));
        }
        let declared = collection.crs.or(self.declared);
        let crs = match &self.unknown_crs {
            Some(message) => Declared::Unknown(message.clone()),
            None => Declared::Code(declared.unwrap_or(WGS84)),
        };
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let features = Some(self.features);
        Ok((Layer { name, crs, fields: self.fields.fields(), features, notices }, declared))
    }
}

/// The properties that were found, in order.
#[derive(Default)]
struct Fields {
    found: Vec<(String, Option<FieldKind>)>,
    places: HashMap<String, usize>,
    /// Where the next property probably is: features of a file have the same ones in the same order.
    next: usize,
}

impl Fields {
    fn take(&mut self, name: &str, value: &Property) {
        let place = match self.found.get(self.next) {
            Some((known, _)) if known == name => self.next,
            _ => self.place(name),
        };
        self.next = if place + 1 < self.found.len() { place + 1 } else { 0 };
        let Some((_, kind)) = self.found.get_mut(place) else { return };
        *kind = match (*kind, kind_of(value)) {
            (known, None) => known,
            (None, found) => found,
            (Some(known), Some(found)) if known == found => Some(known),
            (Some(FieldKind::Integer | FieldKind::Real), Some(FieldKind::Integer | FieldKind::Real)) => {
                Some(FieldKind::Real)
            }
            _ => Some(FieldKind::Json),
        };
    }

    fn place(&mut self, name: &str) -> usize {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let place = self.found.len();
        // The caller refuses the file when it has seen one too many; one feature may bring thousands.
        if place <= FIELDS_MAX {
            self.found.push((name.to_owned(), None));
            self.places.insert(name.to_owned(), place);
        }
        place
    }

    fn fields(&self) -> Vec<Field> {
        let field = |(name, kind): &(String, Option<FieldKind>)| Field {
            name: name.clone(),
            kind: kind.unwrap_or(FieldKind::Text),
        };
        self.found.iter().map(field).collect()
    }
}

fn kind_of(value: &Property) -> Option<FieldKind> {
    Some(match value {
        Property::Null => return None,
        Property::Boolean(_) => FieldKind::Boolean,
        Property::Integer(_) => FieldKind::Integer,
        Property::Real(_) => FieldKind::Real,
        Property::Text(_) => FieldKind::Text,
        Property::Json(_) => FieldKind::Json,
    })
}

/// The second pass.
struct Features {
    stream: Stream,
    reader: Reader,
    places: HashMap<String, usize>,
    crs: Option<u32>,
    number: u64,
}

impl Rows for Features {
    fn next(&mut self) -> Result<Option<Item>> {
        loop {
            let Some(found) = self.stream.next()? else { return Ok(None) };
            match found {
                Found::Feature { item, inner } => return Ok(Some(self.feature(&item, inner))),
                Found::Refused { item: None, error } if is_around(&error) && self.stream.inner.is_none() => {
                    // An unknown coordinate system has been told with the layer.
                    if !matches!(error.code(), Code::CrsUnknown | Code::CrsAmbiguous | Code::CrsAfterFeatures) {
                        return Err(self.stream.refuse(&error));
                    }
                }
                Found::Refused { item, error } => {
                    self.number += 1;
                    let bytes = item.map(|item| self.stream.bytes(&item, false)).unwrap_or_default();
                    return Ok(Some(Item::Bad(bad(self.number, &error, bytes))));
                }
            }
        }
    }
}

impl Features {
    fn feature(&mut self, item: &split::Item, inner: bool) -> Item {
        self.number += 1;
        let bytes = self.stream.bytes(item, inner);
        let feature = match self.reader.read(Input { form: Form::Json, bytes, crs: self.crs }) {
            Ok(feature) => feature,
            Err(error) => return Item::Bad(bad(self.number, &error, bytes)),
        };
        let mut values = vec![Property::Null; self.places.len()];
        for (name, value) in feature.properties {
            if let Some(place) = self.places.get(&name).and_then(|&place| values.get_mut(place)) {
                *place = value;
            }
        }
        let text = Some(bytes.to_vec());
        Item::Row(Row { number: self.number, id: feature.id, geometry: feature.geometry, values, text })
    }
}

fn bad(number: u64, error: &geonce_key::Error, bytes: &[u8]) -> Bad {
    let place = if error.pointer().is_empty() { String::new() } else { format!(" at {}", error.pointer()) };
    Bad {
        number,
        code: error.code().as_str(),
        message: format!("{}{place}", error.message()),
        bytes: bytes[..bytes.len().min(BAD_BYTES_MAX)].to_vec(),
    }
}

#[cfg(test)]
mod tests;
