//! What `geonce load` is given, as files on disk: folders and patterns become files, standard input and what is fetched are kept
//! first.

use crate::failure::Failure;
use geonce::load::fetch::{self, FetchOptions};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files that one pattern or folder may stand for.
const FILES_MAX: usize = 10_000;
/// What standard input may hold.
const STDIN_BYTES_MAX: u64 = 64 << 30;

/// Names of files that a folder is looked through for.
const KNOWN: [&str; 13] = [
    "geojson",
    "json",
    "geojsonl",
    "geojsons",
    "ndjson",
    "jsonl",
    "shp",
    "zip",
    "gpkg",
    "fgb",
    "csv",
    "parquet",
    "geoparquet",
];

/// A source that can be read.
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    /// As it was given.
    pub(crate) name: String,
    /// The name a layer gets from it.
    pub(crate) stem: String,
    /// What it is called in keys.
    pub(crate) uri: String,
    /// When it was last changed, where a server said so.
    pub(crate) modified: Option<i64>,
    /// The pages it was made of.
    pub(crate) query: Option<String>,
    /// What was kept only for this load.
    _kept: Option<tempfile::TempDir>,
}

/// Whether an argument is to be fetched.
pub(crate) fn is_address(argument: &str) -> bool {
    let lower = argument.to_ascii_lowercase();
    lower.starts_with("http://") || lower.starts_with("https://")
}

/// An address that was not fetched, as far as its load's key needs it.
pub(crate) fn unfetched(address: &str, options: &FetchOptions) -> Result<Source, Failure> {
    let (uri, name) = fetch::names(address, options)?;
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let stem = of_file(PathBuf::from(path)).stem;
    Ok(Source { file: PathBuf::new(), name, stem, uri, modified: None, query: None, _kept: None })
}

/// Fetches what is at an address.
pub(crate) async fn fetched(
    address: &str,
    options: &FetchOptions,
    spool: &Path,
    with_crs: bool,
) -> Result<Source, Failure> {
    let folder = temporary(spool, "fetch-")?;
    let progress = |progress: &fetch::Progress| {
        if let Some((wait, why)) = &progress.waiting {
            eprintln!("waiting {} s: {}", wait.as_secs(), crate::show::escaped(why));
        }
    };
    let fetched = fetch::fetch(address, options, folder.path(), &progress).await?;
    if let (Some(crs), false) = (fetched.content_crs.filter(|crs| !crs.contains("CRS84")), with_crs) {
        let crs = crate::show::escaped(&crs);
        return Err(Failure::new("crs_unknown", format!("the server says that its features are in {crs}"))
            .hint("--src-crs says so in words; mind that such servers may write latitude first"));
    }
    // Not the tokens of each page: many servers make new ones for every reading, and the content of all pages is in the key.
    let query = fetched.pages.is_some().then(|| fetched.url_for_key.clone());
    let time = fetched.last_modified.as_deref().and_then(|text| httpdate::parse_http_date(text).ok());
    let modified = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    Ok(Source {
        stem: of_file(PathBuf::from(&fetched.name)).stem,
        file: fetched.path,
        name: fetched.url_shown,
        uri: fetched.url_for_key,
        modified: modified.and_then(|since| i64::try_from(since.as_millis()).ok()),
        query,
        _kept: Some(folder),
    })
}

fn temporary(spool: &Path, prefix: &str) -> Result<tempfile::TempDir, Failure> {
    let made = fs::create_dir_all(spool).and_then(|()| tempfile::Builder::new().prefix(prefix).tempdir_in(spool));
    made.map_err(|error| Failure::io(&spool.display().to_string(), &error))
}

/// All that one argument stands for, in the order of names.
pub(crate) fn expand(argument: &str, spool: &Path) -> Result<Vec<Source>, Failure> {
    if argument == "-" {
        return Ok(vec![standard_input(spool)?]);
    }
    let path = Path::new(argument);
    let files = if path.is_dir() {
        let known = |path: &Path| {
            let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
            KNOWN.contains(&extension.to_ascii_lowercase().as_str())
        };
        listed(path, known)?
    } else if !path.exists() && argument.contains(['*', '?']) {
        let pattern = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        listed(folder, |path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| matches(pattern.as_bytes(), name.as_bytes()))
        })?
    } else if path.exists() {
        vec![path.to_owned()]
    } else {
        return Err(Failure::new("source_missing", format!("there is no file {argument}")));
    };
    if files.is_empty() {
        return Err(Failure::new("source_missing", format!("{argument} stands for no file that could be loaded"))
            .hint(format!("files that end in {}", KNOWN.join(", "))));
    }
    Ok(files.into_iter().map(of_file).collect())
}

fn of_file(file: PathBuf) -> Source {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("features");
    // parcels.shp.zip is called parcels.
    let stem = stem.strip_suffix(".shp").unwrap_or(stem).to_owned();
    let name = file.display().to_string();
    let uri = file.canonicalize().map_or_else(|_| name.clone(), |file| file.display().to_string());
    Source { name, stem, uri, file, modified: None, query: None, _kept: None }
}

fn listed(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, Failure> {
    let shown = folder.display().to_string();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| Failure::io(&shown, &error))? {
        let path = entry.map_err(|error| Failure::io(&shown, &error))?.path();
        if path.is_file() && wanted(&path) {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(Failure::new("source_many", format!("{shown} has more than {FILES_MAX} files")));
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a name fits a pattern: `*` stands for any characters, `?` for one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, n) = (at + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

fn standard_input(spool: &Path) -> Result<Source, Failure> {
    let failed = |error: io::Error| Failure::io("keeping standard input", &error);
    let folder = temporary(spool, "stdin-")?;
    let file = folder.path().join("stdin");
    let mut kept = fs::File::create(&file).map_err(failed)?;
    let bytes = io::copy(&mut io::Read::take(io::stdin().lock(), STDIN_BYTES_MAX + 1), &mut kept).map_err(failed)?;
    if bytes > STDIN_BYTES_MAX {
        return Err(Failure::new("source_long", format!("standard input has more than {STDIN_BYTES_MAX} bytes")));
    }
    let (name, stem) = ("-".to_owned(), "features".to_owned());
    Ok(Source { file, uri: name.clone(), name, stem, modified: None, query: None, _kept: Some(folder) })
}

#[cfg(test)]
mod tests {
    use super::{expand, matches};

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, fits) in [
            ("*.shp", "a.shp", true),
            ("*.shp", "a.shx", false),
            ("a?c*", "abcdef", true),
            ("a?c*", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "ab", true),
            ("", "a", false),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn folders_and_patterns_stand_for_their_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.geojson", "a.shp", "a.dbf", "c.shp.zip"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names = |argument: &std::path::Path| {
            let sources = expand(argument.to_str().unwrap(), folder.path()).unwrap();
            sources.into_iter().map(|source| source.stem).collect::<Vec<_>>()
        };
        assert_eq!(names(folder.path()), ["a", "b", "c"]);
        assert_eq!(names(&folder.path().join("*.shp")), ["a"]);
        let missing = expand(folder.path().join("*.gpkg").to_str().unwrap(), folder.path()).err().unwrap();
        assert_eq!(missing.code(), "source_missing");
    }
}
