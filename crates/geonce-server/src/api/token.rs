//! The token of the API where none is configured: made once, kept in the data folder for its owner only, never logged.

use crate::failure::Failure;
use geonce_key::policy::Secret;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Its file, in the data folder.
pub(crate) const FILE: &str = "api.token";
/// The shortest token that is taken: shorter ones can be guessed.
pub(crate) const BYTES_MIN: usize = 16;
/// The longest.
pub(crate) const BYTES_MAX: usize = 1_024;
/// Random bytes of a token that is made.
const RANDOM_BYTES: usize = 32;

/// The token in the data folder, and its file. Made where there is none; two gateways that start at once get the same one.
pub(crate) fn own(data: &Path) -> Result<(Secret, PathBuf), Failure> {
    let file = data.join(FILE);
    if !file.exists() {
        make(data, &file)?;
    }
    let secret = read(data)?;
    warn_if_open(&file);
    Ok((secret, file))
}

/// The token in the data folder.
pub(crate) fn read(data: &Path) -> Result<Secret, Failure> {
    let file = data.join(FILE);
    let io = |error: std::io::Error| Failure::io(&file.display().to_string(), &error);
    let mut text = String::new();
    File::open(&file).and_then(|file| file.take(BYTES_MAX as u64 + 2).read_to_string(&mut text)).map_err(io)?;
    let token = text.trim_end_matches(['\n', '\r']).to_owned();
    check(&token).map_err(|wrong| {
        Failure::new("api_token", format!("{}: {wrong}", file.display())).hint("remove the file: a new one is made")
    })?;
    Ok(Secret::new(token))
}

/// What is wrong with a token, if something is.
pub(crate) fn check(token: &str) -> Result<(), String> {
    if !(BYTES_MIN..=BYTES_MAX).contains(&token.len()) {
        return Err(format!("a token has {BYTES_MIN} to {BYTES_MAX} characters"));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token has letters, digits and signs of ASCII, and no white space".to_owned());
    }
    Ok(())
}

fn make(data: &Path, file: &Path) -> Result<(), Failure> {
    let io = |error: &std::io::Error| {
        Failure::io(&file.display().to_string(), error).hint("or say token in [api]: none is made then")
    };
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| Failure::new("internal", format!("random numbers: {error}")))?;
    // Made under another name, readable for its owner only, and then put in place whole.
    let mut made = tempfile::NamedTempFile::new_in(data).map_err(|error| io(&error))?;
    writeln!(made, "{}", crate::show::hex(&random)).map_err(|error| io(&error))?;
    made.as_file().sync_all().map_err(|error| io(&error))?;
    match made.persist_noclobber(file) {
        Ok(_) => Ok(()),
        // Another gateway was faster; its token is as good.
        Err(refused) if refused.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(refused) => Err(io(&refused.error)),
    }
}

#[cfg(unix)]
fn warn_if_open(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
        tracing::warn!(file = %file.display(), "others on this machine may read the token of the API: chmod 600");
    }
}

#[cfg(not(unix))]
fn warn_if_open(_file: &Path) {}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, FILE, check, own};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_and_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let (token, file) = own(folder.path()).unwrap();
        assert_eq!(token.bytes().len(), 64);
        assert_eq!(file, folder.path().join(FILE));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(own(folder.path()).unwrap().0.bytes(), token.bytes());
        let other = tempfile::tempdir().unwrap();
        assert_ne!(own(other.path()).unwrap().0.bytes(), token.bytes());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn tokens_that_can_be_guessed_or_not_be_sent_are_refused() {
        for bad in ["", "short", "with a space in it", "umlaut-ü-umlaut-ü", &"x".repeat(BYTES_MAX + 1)] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check("0123456789abcdef").is_ok());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "\n").unwrap();
        assert_eq!(own(folder.path()).err().unwrap().code(), "api_token");
    }
}
