//! Flags of `geonce load`.

use super::PlaceArguments;
use crate::config::Span;
use clap::{Args, ValueEnum};
use std::num::NonZero;
use std::path::PathBuf;

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct LoadArguments {
    /// Files, folders, patterns, addresses (http, https) or `-` for standard input; and last the destination: a GeoPackage such
    /// as `parcels.gpkg`, or `postgresql://localhost/gis`.
    #[arg(required = true, num_args = 2.., value_name = "SOURCE… DESTINATION")]
    pub(crate) paths: Vec<String>,

    /// Layer or table that is written to [default: the file's name].
    #[arg(long, value_name = "NAME")]
    pub(crate) layer: Option<String>,

    /// What is done to it.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mode: ModeArgument,

    /// What becomes of features that are not valid.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) invalid: InvalidArgument,

    /// Commit after each N features, and go on from there after a crash.
    #[arg(long, value_name = "N")]
    pub(crate) chunk: Option<NonZero<u64>>,

    /// Read and key everything, say what would be loaded, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Load again what was loaded; its rows from before give way.
    #[arg(long)]
    pub(crate) force: bool,

    /// Try again what failed for a reason that time does not mend.
    #[arg(long)]
    pub(crate) retry: bool,

    /// Where another runner is loading the same: do not wait for it, exit with code 75.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// How often failures of a destination that time may mend are tried again.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) retries: u32,

    /// After which a runner that is not heard of counts as gone.
    #[arg(long, default_value = "60s", value_name = "DURATION")]
    pub(crate) lease: Span,

    /// How long the destination may be silent.
    #[arg(long, default_value = "5m", value_name = "DURATION")]
    pub(crate) timeout: Span,

    /// One JSON object for each source instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write everything that is known about the load, with every feature that was left out, to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// How progress is shown.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) progress: ProgressArgument,

    /// Coordinate system of the file, over what it says itself.
    #[arg(long, value_name = "CRS", help_heading = "Source")]
    pub(crate) src_crs: Option<String>,

    /// Layer of the file, where it has several.
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub(crate) source_layer: Option<String>,

    /// How the file is written [default: found out from its name and bytes].
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Source")]
    pub(crate) format: Option<FormatArgument>,

    /// Encoding of text, where the file does not say, such as ISO-8859-1.
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub(crate) encoding: Option<String>,

    /// For CSV: the column with WKT, or the two columns with x and y (longitude, latitude).
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', num_args = 1, help_heading = "Source")]
    pub(crate) geometry: Vec<String>,

    /// Header for a source that is fetched, as NAME=VALUE (repeatable); its value is shown nowhere and is in no key.
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Source")]
    pub(crate) header: Vec<String>,

    /// Read all pages of an API; `auto` finds out how the next one is found.
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, default_missing_value = "auto", help_heading = "Source")]
    pub(crate) pages: Option<PagesArgument>,

    /// Where a page has the token of the next one: a JSON pointer such as `/next_token`.
    #[arg(long, value_name = "POINTER", requires = "page_param", conflicts_with = "pages", help_heading = "Source")]
    pub(crate) page_token: Option<String>,

    /// The query parameter in which that token is sent back.
    #[arg(long, value_name = "NAME", requires = "page_token", help_heading = "Source")]
    pub(crate) page_param: Option<String>,

    /// Query parameter that is a credential: shown nowhere and in no key (repeatable).
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub(crate) secret_param: Vec<String>,

    /// Load the first page of an API that has more.
    #[arg(long, conflicts_with = "pages", help_heading = "Source")]
    pub(crate) first_page_only: bool,

    /// Coordinate system of a layer that is made [default: EPSG:4326]; `same` for that of the file.
    #[arg(long, value_name = "CRS", help_heading = "Destination")]
    pub(crate) dst_crs: Option<String>,

    /// Field that names the entity a feature is about, or a JSON pointer (repeatable, or comma-separated). Needed to upsert.
    #[arg(long, value_name = "FIELD", value_delimiter = ',', help_heading = "Key")]
    pub(crate) identity: Vec<String>,

    /// Field with the version: an integer or an RFC 3339 time. Without one, the later load wins.
    #[arg(long, value_name = "FIELD", help_heading = "Key")]
    pub(crate) version: Option<String>,

    /// Decimals of a degree, 0 to 9 [default: 7, about a centimetre].
    #[arg(long, value_name = "DECIMALS", help_heading = "Key")]
    pub(crate) precision: Option<u8>,

    /// Accept coordinate systems whose operation to WGS 84 is approximate.
    #[arg(long, help_heading = "Key")]
    pub(crate) approximate_crs: bool,

    /// Take the policy of this source of the configuration file; flags override it.
    #[arg(long, value_name = "NAME", help_heading = "Key")]
    pub(crate) source: Option<String>,

    /// What of a source tells whether it is the same.
    #[arg(long, value_enum, default_value_t, help_heading = "Key")]
    pub(crate) key_by: KeyByArgument,

    /// Load the same source again in each period, such as 1d.
    #[arg(long, value_name = "DURATION", help_heading = "Key")]
    pub(crate) period: Option<Span>,

    /// Take a file whose size, time and inode are unchanged for unchanged, without reading it.
    #[arg(long, help_heading = "Key")]
    pub(crate) trust_mtime: bool,

    // Last: its help heading would cover what follows.
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
pub(crate) enum ModeArgument {
    /// Add its features.
    #[default]
    Append,
    /// Add or change the entities its features are about; others stay.
    Upsert,
    /// Its features take the place of all others, in one moment.
    Replace,
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum InvalidArgument {
    /// They are left out and listed.
    #[default]
    Reject,
    /// They are kept in the store, where `geonce dead` shows them.
    Dead,
    /// They are mended, and left out where that cannot be.
    Repair,
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum KeyByArgument {
    /// Its bytes.
    #[default]
    Content,
    /// Its name.
    Uri,
    /// Its name and the time of its last change.
    #[value(name = "uri+mtime")]
    UriAndTime,
}

#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
pub(crate) enum ProgressArgument {
    /// A bar on a terminal, else a line every 10 seconds.
    #[default]
    Auto,
    /// A line every 10 seconds.
    Lines,
    /// Not at all.
    None,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FormatArgument {
    /// One GeoJSON document.
    Geojson,
    /// One GeoJSON document per line, or after record separators.
    Ndjson,
    /// A shapefile, also zipped.
    Shapefile,
    /// A GeoPackage.
    Geopackage,
    /// A FlatGeobuf file.
    Flatgeobuf,
    /// Comma-separated values.
    Csv,
    /// A GeoParquet file.
    Geoparquet,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PagesArgument {
    /// By what the address and the first page look like.
    Auto,
    /// By links to the next page (OGC API Features, STAC).
    Links,
    /// By counting (ArcGIS feature layers).
    Arcgis,
}
