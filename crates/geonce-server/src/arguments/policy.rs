//! Flags that make a policy, alone or over a configuration file.

use crate::config::{self, Likeness};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use geonce_key::policy::{AssumedCrs, Detail, Dimensions, Field, Identity, Lines, Parts, Unicode};
use geonce_key::{Pointer, Policy};
use std::path::{Path, PathBuf};

/// Settings of a policy. Without any, the key covers the whole payload.
#[derive(Args)]
#[command(next_help_heading = "Policy")]
pub(crate) struct PolicyArguments {
    /// Configuration file to take a source's policy from; flags override it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Source in the configuration file; not needed if there is just one.
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) source: Option<String>,

    /// JSON pointer of a value that tells events apart, such as `/properties/asset_id` (repeatable).
    #[arg(long, value_name = "POINTER")]
    identity: Vec<String>,

    /// The same for a value that may be absent (repeatable).
    #[arg(long, value_name = "POINTER")]
    identity_optional: Vec<String>,

    /// JSON pointer to leave out of the whole-payload identity (repeatable).
    #[arg(long, value_name = "POINTER", conflicts_with_all = ["identity", "identity_optional"])]
    ignore: Vec<String>,

    /// JSON pointer of the event's version: an integer or an RFC 3339 time.
    #[arg(long, value_name = "POINTER")]
    version: Option<String>,

    /// Name within which keys are unique [default: the source, or "default"].
    #[arg(long)]
    scope: Option<String>,

    /// Decimals of a degree, 0 to 9 [default: 7, about a centimetre].
    #[arg(long, value_name = "DECIMALS")]
    precision: Option<u8>,

    /// Decimals of the third number, 0 to 9 [default: 3].
    #[arg(long, value_name = "DECIMALS")]
    precision_z: Option<u8>,

    /// What becomes of a third number [default: delivered].
    #[arg(long, value_enum)]
    dimensions: Option<DimensionsArgument>,

    /// Whether a line equals its reverse [default: directed].
    #[arg(long, value_enum)]
    lines: Option<LinesArgument>,

    /// Whether the order of parts counts [default: sorted, it does not].
    #[arg(long, value_enum)]
    parts: Option<PartsArgument>,

    /// How much of a geometry's form counts; other than exact only with `--dimensions 2` [default: exact].
    #[arg(long, value_enum)]
    shape: Option<ShapeArgument>,

    /// Coordinate system assumed where none is declared, or `required` [default: EPSG:4326].
    #[arg(long, value_name = "CRS")]
    crs: Option<String>,

    /// Accept coordinate systems whose operation to WGS 84 is approximate.
    #[arg(long)]
    approximate_crs: bool,

    /// Close unclosed rings instead of refusing them.
    #[arg(long)]
    close_rings: bool,

    /// JSON pointer of the Feature, where payloads are envelopes.
    #[arg(long, value_name = "POINTER")]
    feature: Option<String>,

    /// Geometry types to accept, with `null` for features without geometry (repeatable or comma-separated).
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    accept_types: Vec<String>,

    /// How text of the identity is compared [default: exact].
    #[arg(long, value_enum)]
    unicode: Option<UnicodeArgument>,
}

impl PolicyArguments {
    /// The policy these flags and their configuration file describe.
    pub(crate) fn policy(&self) -> Result<Policy, Failure> {
        Ok(self.likeness_of(self.source.as_deref())?.policy)
    }

    /// What makes payloads alike of another source of the configuration file.
    pub(crate) fn likeness_of(&self, source: Option<&str>) -> Result<Likeness, Failure> {
        let likeness = match &self.config {
            Some(file) => config::likeness(file, source)?,
            None => Likeness::default(),
        };
        Ok(Likeness { policy: self.over(likeness.policy)?, ..likeness })
    }

    /// The same for a recorded event's source; without a configuration, as the gateway has it then.
    pub(crate) fn likeness_of_recorded(&self, file: Option<&Path>, source: &str) -> Result<Likeness, Failure> {
        let likeness = match file {
            Some(file) => config::likeness(file, Some(source))?,
            None => {
                Likeness { policy: Policy { scope: source.to_owned(), ..Policy::default() }, ..Likeness::default() }
            }
        };
        Ok(Likeness { policy: self.over(likeness.policy)?, ..likeness })
    }

    /// What flags make of a policy.
    fn over(&self, mut policy: Policy) -> Result<Policy, Failure> {
        self.apply_identity(&mut policy)?;
        let pointer = |text: &Option<String>| text.as_deref().map(Pointer::parse).transpose();
        policy.version = pointer(&self.version)?.or(policy.version);
        policy.feature = pointer(&self.feature)?.or(policy.feature);
        policy.scope = self.scope.clone().unwrap_or(policy.scope);
        policy.precision = self.precision.unwrap_or(policy.precision);
        policy.precision_z = self.precision_z.unwrap_or(policy.precision_z);
        policy.dimensions = self.dimensions.map_or(policy.dimensions, Into::into);
        policy.lines = self.lines.map_or(policy.lines, Into::into);
        policy.parts = self.parts.map_or(policy.parts, Into::into);
        policy.shape = self.shape.map_or(policy.shape, Into::into);
        policy.unicode = self.unicode.map_or(policy.unicode, Into::into);
        policy.approximate_crs |= self.approximate_crs;
        policy.close_rings |= self.close_rings;
        if let Some(crs) = &self.crs {
            policy.crs = parse_crs(crs)?;
        }
        if !self.accept_types.is_empty() {
            policy.accept.types = Some(self.accept_types.clone());
        }
        Ok(policy)
    }

    fn apply_identity(&self, policy: &mut Policy) -> Result<(), Failure> {
        let parse = |texts: &[String]| texts.iter().map(|text| Pointer::parse(text)).collect::<Result<Vec<_>, _>>();
        if !self.ignore.is_empty() {
            policy.identity = Identity::Whole { ignore: parse(&self.ignore)? };
        }
        let required = parse(&self.identity)?.into_iter().map(Field::required);
        let optional =
            parse(&self.identity_optional)?.into_iter().map(|at| Field { optional: true, ..Field::required(at) });
        let fields: Vec<Field> = required.chain(optional).collect();
        if !fields.is_empty() {
            policy.identity = Identity::Fields(fields);
        }
        Ok(())
    }
}

/// What `crs` of a policy says: `required`, or a declaration.
pub(crate) fn parse_crs(text: &str) -> Result<AssumedCrs, Failure> {
    if text == "required" {
        return Ok(AssumedCrs::Required);
    }
    Ok(AssumedCrs::Code(geonce_key::crs::parse(text)?.code()))
}

#[derive(Clone, Copy, ValueEnum)]
enum DimensionsArgument {
    Delivered,
    #[value(name = "2")]
    Two,
    #[value(name = "3")]
    Three,
}

impl From<DimensionsArgument> for Dimensions {
    fn from(dimensions: DimensionsArgument) -> Dimensions {
        match dimensions {
            DimensionsArgument::Delivered => Dimensions::Delivered,
            DimensionsArgument::Two => Dimensions::Two,
            DimensionsArgument::Three => Dimensions::Three,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum LinesArgument {
    Directed,
    Undirected,
}

impl From<LinesArgument> for Lines {
    fn from(lines: LinesArgument) -> Lines {
        match lines {
            LinesArgument::Directed => Lines::Directed,
            LinesArgument::Undirected => Lines::Undirected,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ShapeArgument {
    Exact,
    Simplified,
    Bbox,
}

impl From<ShapeArgument> for Detail {
    fn from(shape: ShapeArgument) -> Detail {
        match shape {
            ShapeArgument::Exact => Detail::Exact,
            ShapeArgument::Simplified => Detail::Simplified,
            ShapeArgument::Bbox => Detail::Bbox,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum PartsArgument {
    Sorted,
    Ordered,
}

impl From<PartsArgument> for Parts {
    fn from(parts: PartsArgument) -> Parts {
        match parts {
            PartsArgument::Sorted => Parts::Sorted,
            PartsArgument::Ordered => Parts::Ordered,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum UnicodeArgument {
    Exact,
    Nfc,
}

impl From<UnicodeArgument> for Unicode {
    fn from(unicode: UnicodeArgument) -> Unicode {
        match unicode {
            UnicodeArgument::Exact => Unicode::Exact,
            UnicodeArgument::Nfc => Unicode::Nfc,
        }
    }
}
