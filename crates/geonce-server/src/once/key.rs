//! The key of a command: what it is made of, byte for byte as `docs/once.md` says, and the digest of files and folders.
//!
//! The folder in which a command is started, its environment and the clock are no part of it.

use crate::arguments::OnceArguments;
use crate::failure::Failure;
use crate::show;
use geonce::clock::Timestamp;
use geonce::event::EventId;
use geonce_key::Fingerprint;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the bytes of a key begin with; another number would be another way to make them.
const HEAD: &[u8] = b"geonce once 1\n";
/// What the bytes of the key begin with under which a command that is done is run again.
const HEAD_AGAIN: &[u8] = b"geonce once again 1\n";
/// Files in one folder, with everything under it.
const FILES_MAX: usize = 1_000_000;
/// Folders within folders.
const DEPTH_MAX: usize = 64;
/// Read at once.
const BUFFER_BYTES: usize = 1 << 18;

/// The digest of a file, or of everything in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) sha256: [u8; 32],
    pub(super) bytes: u64,
    pub(super) folder: bool,
}

/// The key of what the arguments ask for at `now`.
pub(super) fn of(arguments: &OnceArguments, now: Timestamp) -> Result<Fingerprint, Failure> {
    let inputs = arguments.key_from.iter().map(|path| {
        content(path).map_err(|error| {
            Failure::io(&format!("--key-from {}", path.display()), &error).hint("it must be a file or a folder")
        })
    });
    let inputs = inputs.collect::<Result<Vec<Content>, Failure>>()?;
    Ok(Fingerprint::from_digest(Sha256::digest(bytes(arguments, &inputs, now)).into(), false))
}

/// The key under which a command is run again that is done as `event` under `key`. All who want that come to the same one.
pub(super) fn again(key: &Fingerprint, event: EventId) -> Fingerprint {
    let mut digest = Sha256::new();
    digest.update(HEAD_AGAIN);
    digest.update(key.digest());
    digest.update(event.to_bytes());
    Fingerprint::from_digest(digest.finalize().into(), false)
}

/// Every part with its kind and its length, so that no two lists of parts are the same bytes.
fn bytes(arguments: &OnceArguments, inputs: &[Content], now: Timestamp) -> Vec<u8> {
    let mut bytes = HEAD.to_vec();
    if let Some(name) = &arguments.name {
        add(&mut bytes, "name", name.as_bytes());
    }
    if let Some(period) = arguments.period {
        let start = start_of_period(now, period.0);
        add(&mut bytes, "period", format!("{} {start}", period.0.as_millis()).as_bytes());
    }
    for word in &arguments.command {
        add(&mut bytes, "word", word.as_bytes());
    }
    let mut params: Vec<&[u8]> = arguments.param.iter().map(String::as_bytes).collect();
    params.sort_unstable();
    for param in params {
        add(&mut bytes, "param", param);
    }
    for input in inputs {
        let kind = if input.folder { "folder" } else { "file" };
        add(&mut bytes, kind, show::hex(&input.sha256).as_bytes());
    }
    for output in &arguments.output {
        add(&mut bytes, "output", output.as_os_str().as_bytes());
    }
    bytes
}

fn add(bytes: &mut Vec<u8>, kind: &str, part: &[u8]) {
    bytes.extend_from_slice(format!("{kind} {}\n", part.len()).as_bytes());
    bytes.extend_from_slice(part);
    bytes.push(b'\n');
}

fn start_of_period(now: Timestamp, period: Duration) -> Timestamp {
    let millis = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
    Timestamp::from_millis(now.millis() - now.millis().rem_euclid(millis))
}

/// The digest of what is at `path`; links are followed.
pub(super) fn content(path: &Path) -> io::Result<Content> {
    let about = std::fs::metadata(path)?;
    if about.is_dir() {
        return folder(path);
    }
    if !about.is_file() {
        return Err(io::Error::other("neither a file nor a folder"));
    }
    let mut digest = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = 0;
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&buffer[..read]);
        bytes += read as u64;
    }
    Ok(Content { sha256: digest.finalize().into(), bytes, folder: false })
}

/// Of a folder count the names of its files, relative to it, and what is in them; empty folders do not.
fn folder(path: &Path) -> io::Result<Content> {
    let mut files = files(path)?;
    files.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    let (mut listed, mut bytes) = (Sha256::new(), 0);
    for file in files {
        let content = content(&path.join(&file))?;
        let mut line = Vec::new();
        add(&mut line, "path", file.as_os_str().as_bytes());
        add(&mut line, "file", show::hex(&content.sha256).as_bytes());
        listed.update(&line);
        bytes += content.bytes;
    }
    Ok(Content { sha256: listed.finalize().into(), bytes, folder: true })
}

/// All files in a folder, relative to it.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut waiting) = (Vec::new(), vec![(PathBuf::new(), 0)]);
    while let Some((inside, depth)) = waiting.pop() {
        if depth > DEPTH_MAX {
            return Err(io::Error::other(format!("folders are more than {DEPTH_MAX} deep")));
        }
        for entry in std::fs::read_dir(folder.join(&inside))? {
            let path = inside.join(entry?.file_name());
            if std::fs::metadata(folder.join(&path))?.is_dir() {
                waiting.push((path, depth + 1));
            } else {
                found.push(path);
            }
            if found.len() + waiting.len() > FILES_MAX {
                return Err(io::Error::other(format!("there are more than {FILES_MAX} files in it")));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{again, bytes, content, of};
    use crate::arguments::{Arguments, Command, OnceArguments};
    use clap::Parser;
    use geonce::clock::Timestamp;
    use geonce::event::EventId;

    const NOW: Timestamp = Timestamp::from_millis(1_794_744_131_000);

    fn arguments(words: &[&str]) -> Box<OnceArguments> {
        match Arguments::try_parse_from([&["geonce", "once"], words].concat()) {
            Ok(Arguments { command: Command::Once(arguments) }) => arguments,
            Ok(_) => panic!("another command"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_documentation() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("in.txt");
        std::fs::write(&input, "abc").unwrap();
        let words = ["--name", "n", "--period", "1d", "--param", "b=2", "a=1", "--key-from", input.to_str().unwrap()];
        let words = [&words[..], &["--output", "out.tif", "--", "cp", "in.txt", "{output}"]].concat();
        let made = bytes(&arguments(&words), &[content(&input).unwrap()], NOW);
        let expected = "geonce once 1\nname 1\nn\nperiod 33\n86400000 2026-11-15T00:00:00.000Z\nword 2\ncp\nword 6\nin.txt\n\
            word 8\n{output}\nparam 3\na=1\nparam 3\nb=2\nfile 64\n\
            ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\noutput 7\nout.tif\n";
        assert_eq!(String::from_utf8(made).unwrap(), expected);
        let docs = include_str!("../../../../docs/once.md");
        for line in expected.lines() {
            assert!(docs.contains(line), "the documentation's example lacks {line}");
        }
        let key = crate::show::hex(of(&arguments(&words), NOW).unwrap().digest());
        assert!(docs.contains(&key), "the documentation's example has the key {key}");
    }

    #[test]
    fn what_differs_has_another_key_and_what_does_not_has_not() {
        let key = |words: &[&str]| of(&arguments(words), NOW).unwrap();
        let plain = key(&["--", "a", "b"]);
        assert_eq!(plain, key(&["--retries", "9", "--no-wait", "--", "a", "b"]));
        for other in [
            &["--", "a b"] as &[&str],
            &["--", "b", "a"],
            &["--name", "n", "--", "a", "b"],
            &["--param", "x=1", "--", "a", "b"],
            &["--output", "o", "--", "a", "b"],
            &["--period", "1d", "--", "a", "b"],
            &["--", "a", "b", ""],
        ] {
            assert_ne!(plain, key(other), "{other:?}");
        }
        assert_eq!(key(&["--param", "x=1", "y=2", "--", "a"]), key(&["--param", "y=2", "--param", "x=1", "--", "a"]));
        let (first, second) = (EventId::from_bytes([1; 16]), EventId::from_bytes([2; 16]));
        assert!(again(&plain, first) != again(&plain, second) && again(&plain, first) != plain);
    }

    #[test]
    fn a_folder_is_its_files_names_and_contents() {
        let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for folder in [&one, &two] {
            std::fs::create_dir_all(folder.path().join("deep/er")).unwrap();
            std::fs::write(folder.path().join("deep/er/b"), "2").unwrap();
            std::fs::write(folder.path().join("a"), "1").unwrap();
        }
        std::fs::create_dir(two.path().join("empty")).unwrap();
        let first = content(one.path()).unwrap();
        assert_eq!((first, first.bytes, first.folder), (content(two.path()).unwrap(), 2, true));
        std::fs::rename(two.path().join("a"), two.path().join("c")).unwrap();
        assert_ne!(first, content(two.path()).unwrap(), "another name");
        std::fs::rename(two.path().join("c"), two.path().join("a")).unwrap();
        std::fs::write(two.path().join("deep/er/b"), "3").unwrap();
        assert_ne!(first, content(two.path()).unwrap(), "another content");
        std::os::unix::fs::symlink(two.path(), two.path().join("deep/round")).unwrap();
        assert!(content(two.path()).unwrap_err().to_string().contains("deep"), "a folder in itself ends");
        assert!(content(&one.path().join("nothing")).is_err());
    }

    #[test]
    fn a_period_begins_in_utc() {
        let key = |millis: i64| of(&arguments(&["--period", "1d", "--", "a"]), Timestamp::from_millis(millis)).unwrap();
        let day = 86_400_000;
        assert_eq!(key(20 * day), key(21 * day - 1));
        assert_ne!(key(20 * day - 1), key(20 * day));
    }
}
