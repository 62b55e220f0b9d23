//! What a command makes: written beside its place under a name of this run alone, and put into its place when the command
//! has succeeded and the bytes are on disk.
//!
//! The name is `.geonce-`, 16 digits of the run's key, `-`, its token, `-` and the name of the output. What the command makes
//! beside it with a name that begins so (`out.tif.aux.xml`, `out.shx`) goes along. Several outputs are put into place one
//! after the other: a crash in between leaves a run that is not done, and is made good by the next.

use super::key::{self, Content};
use crate::failure::Failure;
use crate::show;
use geonce_key::Fingerprint;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the names of unfinished outputs begin with.
const PREFIX: &str = ".geonce-";
/// Bytes of the key in such a name.
const KEY_BYTES: usize = 8;
/// Bytes that what is remembered of the outputs may have: a result has four kilobytes, and says other things too.
const REMEMBERED_BYTES_MAX: usize = 3 << 10;
/// Bytes of what is remembered of one output besides its path.
const REMEMBERED_BYTES_EACH: usize = 140;

/// The outputs of a command, as the arguments name them.
#[derive(Clone)]
pub(super) struct Outputs(Arc<[PathBuf]>);

/// The outputs of one attempt.
#[derive(Clone)]
pub(super) struct Unfinished {
    outputs: Arc<[PathBuf]>,
    /// What the names of this attempt's files begin with.
    prefix: String,
}

/// What is remembered of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    path: PathBuf,
    content: Content,
}

impl Made {
    pub(super) fn to_json(&self) -> Value {
        let mut value = json!({ "path": self.path.to_str(), "bytes": self.content.bytes });
        value["sha256"] = show::hex(&self.content.sha256).into();
        if self.content.folder {
            value["folder"] = true.into();
        }
        value
    }
}

impl Outputs {
    /// Checks that outputs could be made and remembered.
    pub(super) fn new(paths: &[PathBuf]) -> Result<Outputs, Failure> {
        let mut remembered = 0;
        for path in paths {
            let refuse = |message: &str| {
                Failure::new(
                    "output_invalid",
                    format!("--output {}: {message}", show::escaped(&path.to_string_lossy())),
                )
            };
            let (Some(text), Some(_)) = (path.to_str(), path.file_name()) else {
                return Err(refuse("this is no name that a file could be remembered by"));
            };
            if !parent(path).is_dir() {
                return Err(refuse("its folder is not there").hint("make it first"));
            }
            remembered += json!(text).to_string().len() + REMEMBERED_BYTES_EACH;
        }
        if paths.iter().collect::<BTreeSet<_>>().len() < paths.len() {
            return Err(Failure::new("output_invalid", "an --output is named twice"));
        }
        if remembered > REMEMBERED_BYTES_MAX {
            return Err(Failure::new("output_invalid", "there are more outputs than can be remembered")
                .hint("let the command make a folder, and name that"));
        }
        Ok(Outputs(paths.into()))
    }

    /// What is wrong with what is there now, compared with what a `result` remembers.
    pub(super) fn changed(&self, result: &Value) -> Option<String> {
        let remembered = result["outputs"].as_array().map_or(&[][..], Vec::as_slice);
        for path in self.0.iter() {
            let shown = show::escaped(&path.to_string_lossy());
            let known = remembered.iter().find(|output| output["path"].as_str().map(Path::new) == Some(path));
            let Some(known) = known else { return Some(format!("{shown} is not remembered")) };
            let about = match fs::metadata(path) {
                Ok(about) => about,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(format!("{shown} is missing")),
                Err(error) => return Some(format!("{shown} cannot be read: {error}")),
            };
            // What has another length need not be read.
            if about.is_file() && known["bytes"] != about.len() {
                return Some(format!("{shown} has changed"));
            }
            match key::content(path) {
                Ok(content) if (Made { path: path.clone(), content }).to_json() == *known => {}
                Ok(_) => return Some(format!("{shown} has changed")),
                Err(error) => return Some(format!("{shown} cannot be read: {error}")),
            }
        }
        None
    }

    /// The outputs of the attempt with this token. What earlier attempts of the same run have left is removed.
    pub(super) fn begin(&self, key: &Fingerprint, token: u64) -> io::Result<Unfinished> {
        let digits = show::hex(&key.digest()[..KEY_BYTES]);
        let run = format!("{PREFIX}{digits}-");
        let earlier = |name: &str| {
            let rest = name.strip_prefix(&run)?;
            // Later attempts have greater tokens: what is not ours and not theirs is nobody's.
            (rest.split('-').next()?.parse::<u64>().ok()? <= token).then_some(())
        };
        for folder in folders(&self.0) {
            for name in names(&folder)? {
                if name.to_str().and_then(earlier).is_some() {
                    remove(&folder.join(name))?;
                }
            }
        }
        Ok(Unfinished { outputs: Arc::clone(&self.0), prefix: format!("{run}{token}-") })
    }
}

impl Unfinished {
    /// Where the command writes each output: in a folder that is named in full, as the command may go elsewhere.
    pub(super) fn places(&self) -> io::Result<Vec<PathBuf>> {
        self.outputs.iter().map(|path| Ok(std::path::absolute(parent(path))?.join(self.hidden(path)))).collect()
    }

    fn hidden(&self, path: &Path) -> OsString {
        let mut name = OsString::from(&self.prefix);
        name.push(path.file_name().unwrap_or_default());
        name
    }

    /// The command's words with the outputs' places in them.
    pub(super) fn words(&self, words: &[OsString]) -> Result<Vec<OsString>, Failure> {
        let places = self.places().map_err(|error| Failure::io("the current folder", &error))?;
        let given = words.iter().enumerate().map(|(i, word)| {
            let path = self.outputs.iter().position(|path| i > 0 && plain(path) == plain(Path::new(word)));
            match (path, word.to_str()) {
                (Some(n), _) => Ok(places[n].clone().into_os_string()),
                (None, Some(text)) if !places.is_empty() && text.contains("{output") => filled(text, &places),
                _ => Ok(word.clone()),
            }
        });
        given.collect()
    }

    /// Reads what was made, brings it to the disk, and tells what is remembered of it; `Err` has what is missing.
    pub(super) fn made(&self) -> io::Result<Result<Vec<Made>, PathBuf>> {
        let mut all = Vec::new();
        for path in self.outputs.iter() {
            let place = parent(path).join(self.hidden(path));
            if !place.exists() {
                return Ok(Err(path.clone()));
            }
            let content = key::content(&place)?;
            all.push(Made { path: path.clone(), content });
        }
        for folder in folders(&self.outputs) {
            for name in self.names_in(&folder)? {
                bring_to_disk(&folder.join(name))?;
            }
        }
        Ok(Ok(all))
    }

    /// Puts everything into its place.
    pub(super) fn finish(&self) -> io::Result<()> {
        for folder in folders(&self.outputs) {
            // The outputs themselves come last: who sees them sees what goes along with them too.
            let mut names = self.names_in(&folder)?;
            names.sort_by_key(|name| self.outputs.iter().any(|path| self.hidden(path) == *name));
            for name in names {
                let place = folder.join(&name);
                let target = folder.join(name.to_string_lossy().get(self.prefix.len()..).unwrap_or_default());
                self.put(&place, &target)?;
            }
            File::open(&folder)?.sync_all()?;
        }
        Ok(())
    }

    /// A file takes the place of a file at once. A folder cannot: the one that is there is moved away first.
    fn put(&self, place: &Path, target: &Path) -> io::Result<()> {
        let aside = match fs::symlink_metadata(target) {
            Ok(about) if about.is_dir() => {
                let mut name = OsString::from(format!("{}old-", self.prefix));
                name.push(target.file_name().unwrap_or_default());
                let aside = parent(target).join(name);
                fs::rename(target, &aside)?;
                Some(aside)
            }
            _ => None,
        };
        fs::rename(place, target)?;
        aside.map_or(Ok(()), |aside| remove(&aside))
    }

    /// Removes what an attempt that failed has made.
    pub(super) fn abandon(&self) {
        for folder in folders(&self.outputs) {
            for name in self.names_in(&folder).unwrap_or_default() {
                // What cannot be removed now is removed by the next attempt, or stops that one with a reason.
                let _ = remove(&folder.join(name));
            }
        }
    }

    fn names_in(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let mut names = names(folder)?;
        names.retain(|name| name.to_str().is_some_and(|name| name.starts_with(&self.prefix)));
        Ok(names)
    }
}

/// The text with the places of outputs where it names them.
fn filled(text: &str, places: &[PathBuf]) -> Result<OsString, Failure> {
    let (mut out, mut rest) = (OsString::new(), text);
    while let Some((before, after)) = rest.split_once("{output") {
        out.push(before);
        let inside = after.split_once('}').map(|(number, tail)| (number.strip_prefix(':'), number, tail));
        let (number, tail) = match inside {
            Some((None, "", tail)) => (Some(1), tail),
            Some((Some(number), _, tail)) => (number.parse::<usize>().ok(), tail),
            // Something else in braces, which is the command's own.
            _ => {
                out.push("{output");
                rest = after;
                continue;
            }
        };
        let place = number.and_then(|number| places.get(number.checked_sub(1)?)).ok_or_else(|| {
            Failure::new("output_invalid", format!("{}: there is no such output", show::escaped(text)))
                .hint(format!("--output is given {} times; the first is {{output:1}}", places.len()))
        })?;
        out.push(place);
        rest = tail;
    }
    out.push(rest);
    Ok(out)
}

/// The folder of a path.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A path without the `./` that it may begin with.
fn plain(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

/// The folders of the outputs, each once.
fn folders(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    paths.iter().map(|path| parent(path).to_owned()).collect()
}

fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).filter(ours).collect()
}

/// Of a large folder only what could be an output is kept in memory.
fn ours(name: &io::Result<OsString>) -> bool {
    name.as_deref().map_or(true, |name: &OsStr| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn bring_to_disk(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        for file in key::files(path)? {
            let file = path.join(file);
            File::open(&file)?.sync_all()?;
            File::open(parent(&file))?.sync_all()?;
        }
    }
    File::open(path)?.sync_all()
}
