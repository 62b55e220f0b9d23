//! The command line: every flag and its help.

mod load;
mod once;
mod policy;
mod tools;

use clap::{Args, Parser, Subcommand, ValueEnum};
use geonce_key::Encoding;
use geonce_key::split::Format;
use std::net::SocketAddr;
use std::path::PathBuf;

pub(crate) use load::{
    FormatArgument, InvalidArgument, KeyByArgument, LoadArguments, ModeArgument, PagesArgument, ProgressArgument,
};
pub(crate) use once::OnceArguments;
pub(crate) use policy::{PolicyArguments, parse_crs};
pub(crate) use tools::{
    CheckArguments, ConsentArguments, DeadArguments, DeadChangeArguments, DeadChoiceArguments, DeadCommand,
    DeadExportArguments, DeadListArguments, DeadRepairArguments, DoctorArguments, EventsCommand, EventsListArguments,
    PlaceArguments, ShowArguments, moment, named,
};

/// Each geospatial event takes effect once.
#[derive(Parser)]
#[command(name = "geonce", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print the spatial event key of each feature.
    ///
    /// Reads GeoJSON (Feature, geometry, FeatureCollection), NDJSON, GeoJSON text sequences, WKT and WKB.
    ///
    /// Prints one line per feature: its key, or `ERR code pointer` for one that is refused.
    ///
    /// Exit code 0: all keyed, 1: some refused, 2: usage.
    Key(KeyArguments),
    /// Say why two payloads are the same event, or why not.
    ///
    /// Where their source looks for near-duplicates, also whether two events would be near, and what recorded ones were near to.
    ///
    /// Exit code 0: same event, 1: different, 2: usage, or a payload that is refused.
    Explain(ExplainArguments),
    /// Receive events, keep them and bring them to their sinks.
    ///
    /// Without a configuration file: one unsigned source `default` on this machine only, written to a GeoPackage.
    Serve(ServeArguments),
    /// Say whether a configuration is right: settings, connections, and its `[[test]]` pairs.
    ///
    /// With --against, say what a change of policies would do to events: which would merge, split, or be refused.
    ///
    /// Exit code 0: all is well, 1: something is wrong (with --against: events would merge, split or be refused),
    /// 2: usage, or a file that cannot be read.
    Check(CheckArguments),
    /// Load files into a layer, each once.
    ///
    /// Reads GeoJSON, NDJSON, shapefiles (also zipped), GeoPackage, FlatGeobuf, CSV and GeoParquet; writes GeoPackage and
    /// PostGIS. A file that is loaded is not loaded again; readers of the layer see all of a load or nothing of it.
    ///
    /// Exit code 0: loaded, now or before; 1: some features were left out, or it failed before; 2: usage or environment;
    /// 75: another runner is loading the same (--no-wait); 130: interrupted, nothing written.
    Load(Box<LoadArguments>),
    /// Run a command once: whoever comes later gets the result of the first.
    ///
    /// The key is made of the command's words and of what the flags name. A command that succeeded is not run again, a
    /// failed one is retried, one that another runner is busy with is waited for.
    ///
    /// Exit code: the command's (of the first run, if it is not run again); 75: somebody else runs it (--no-wait);
    /// 125: a failure of geonce; 126, 127: the command cannot be run, is not there; 128+n: ended by signal n.
    Once(Box<OnceArguments>),
    /// Ends a command whose runner is gone: `geonce once` starts one beside each command.
    #[command(hide = true)]
    Guard,
    /// Look at recorded events.
    #[command(subcommand)]
    Events(EventsCommand),
    /// Look at dead events, bring them back, or remove them.
    Dead(DeadArguments),
    /// Compare the books, the store and the sinks with each other, and give advice from what came in.
    ///
    /// Advice never makes the answer no.
    ///
    /// Exit code 0: all is well, 1: something is wrong, 2: usage, or something that cannot be reached.
    Doctor(DoctorArguments),
    /// Print a script that completes commands and flags in a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// A gateway, a bad network, and two kills: see that nothing is lost and nothing happens twice.
    ///
    /// Serves in a process of its own, sends it zones as a bad network would, kills it twice, and counts afterwards.
    ///
    /// Exit code 0: nothing lost, nothing twice; 1: something was.
    Demo(DemoArguments),
}

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct KeyArguments {
    /// File to read; `-` or nothing for standard input.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,

    /// How the input is divided into payloads.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: InputFormat,

    /// How keys are written.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) encoding: KeyEncoding,

    /// One JSON object per feature: line, key, aliases, fingerprint, warnings; or line and error.
    #[arg(long)]
    pub(crate) json: bool,

    /// With --json, the canonical bytes that were hashed.
    #[arg(long, requires = "json")]
    pub(crate) canonical: bool,

    /// With --json, whether the geometry is valid on the grid, and what is wrong where. Not part of the key.
    #[arg(long, requires = "json")]
    pub(crate) validity: bool,

    /// Stop at the first feature that is refused.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Threads that make keys; 0 for one per core.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) threads: usize,

    // Last: its help heading would cover what follows.
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Folder for the demo's files; made anew each time.
    #[arg(long, value_name = "FOLDER", default_value = "geonce-demo")]
    pub(crate) folder: PathBuf,

    /// Keep the gateway running afterwards, until Ctrl-C.
    #[arg(long)]
    pub(crate) stay: bool,

    /// Show the key alone instead: one parcel through everything a bad network does to it.
    #[arg(long, conflicts_with = "stay")]
    pub(crate) keys: bool,
}

#[derive(Args)]
pub(crate) struct ServeArguments {
    /// Address and port to listen on [default: 127.0.0.1:8787].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// Folder of the store and of files that sinks write [default: ./geonce-data].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,

    /// Configuration file [default: geonce.toml, if there is one here].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Write what is in force to this file, or to standard output for `-`, and stop.
    #[arg(long, value_name = "FILE")]
    pub(crate) save_config: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ExplainArguments {
    /// First payload: a file with one feature, or a recorded event such as `evt_01K…`.
    pub(crate) a: PathBuf,

    /// Second payload; `-` for standard input.
    pub(crate) b: PathBuf,

    /// Key the second payload under this source of the same configuration file.
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) source_b: Option<String>,

    /// Delivery ids, as header=id: once for the first payload, once for the second.
    #[arg(long, value_name = "HEADER=ID", num_args = 1)]
    pub(crate) delivery: Vec<String>,

    /// How the files are written.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: InputFormat,

    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw both geometries into this SVG file; `-` for standard output instead of text.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Folder of the store that recorded events are taken from [default: ./geonce-data].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,

    /// That store [default: the configuration's].
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,

    // Last: its help heading would cover what follows.
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum InputFormat {
    /// Find out from the file's name and bytes.
    #[default]
    Auto,
    /// One JSON document.
    Json,
    /// One JSON document per line.
    Ndjson,
    /// JSON documents after record separators (RFC 8142).
    Seq,
    /// One WKT or EWKT geometry per line.
    Wkt,
    /// One WKB or EWKB geometry.
    Wkb,
    /// One WKB or EWKB geometry per line, in hexadecimal.
    WkbHex,
}

impl From<InputFormat> for Format {
    fn from(format: InputFormat) -> Format {
        match format {
            InputFormat::Auto => Format::Auto,
            InputFormat::Json => Format::Json,
            InputFormat::Ndjson => Format::Lines,
            InputFormat::Seq => Format::Sequence,
            InputFormat::Wkt => Format::Wkt,
            InputFormat::Wkb => Format::Wkb,
            InputFormat::WkbHex => Format::WkbHex,
        }
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum KeyEncoding {
    /// 22 characters of base64url.
    #[default]
    Base64,
    /// 32 hexadecimal digits.
    Hex,
    /// The whole digest in 64 hexadecimal digits.
    Full,
}

impl From<KeyEncoding> for Encoding {
    fn from(encoding: KeyEncoding) -> Encoding {
        match encoding {
            KeyEncoding::Base64 => Encoding::Base64,
            KeyEncoding::Hex => Encoding::Hex,
            KeyEncoding::Full => Encoding::Full,
        }
    }
}
