//! Addresses of stores and sinks, which may hold a password: used whole, shown without it.

use super::HIDDEN;
use std::fmt;
use std::ops::Deref;

/// An address. What it is shown as can be read by anybody.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url(String);

impl Url {
    pub(super) fn new(text: String) -> Url {
        Url(text)
    }

    /// Whether it was saved without its password.
    pub(super) fn is_hidden(&self) -> bool {
        self.0.contains(HIDDEN)
    }
}

impl Deref for Url {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else { return f.write_str(&self.0) };
        let (before, query) = rest.split_once('?').map_or((rest, None), |(before, query)| (before, Some(query)));
        // A password may hold an @, so the last one ends it.
        let (user, host) = before.rsplit_once('@').map_or((None, before), |(user, host)| (Some(user), host));
        write!(f, "{scheme}://")?;
        match user.map(|user| user.split_once(':').map_or((user, None), |(name, word)| (name, Some(word)))) {
            None => {}
            Some((name, None)) => write!(f, "{name}@")?,
            Some((name, Some(_))) => write!(f, "{name}:{HIDDEN}@")?,
        }
        f.write_str(host)?;
        for (number, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
            let hides = pair.split_once('=').filter(|(name, _)| name.contains("pass") || name.contains("secret"));
            f.write_str(if number == 0 { "?" } else { "&" })?;
            match hides {
                Some((name, _)) => write!(f, "{name}={HIDDEN}")?,
                None => f.write_str(pair)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::Url;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, shown) in [
            ("gpkg:features.gpkg", "gpkg:features.gpkg"),
            ("https://example.org/in?a=b", "https://example.org/in?a=b"),
            ("postgresql://me@host/gis?schema=zones", "postgresql://me@host/gis?schema=zones"),
            ("postgresql://me:a@b:c@host:5432/gis", "postgresql://me:(hidden)@host:5432/gis"),
            (
                "postgresql://host/gis?user=me&password=x&schema=z",
                "postgresql://host/gis?user=me&password=(hidden)&schema=z",
            ),
        ] {
            let url = Url::new(url.to_owned());
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), format!("{shown:?}")));
            assert_eq!(Url::new(shown.to_owned()).is_hidden(), shown.contains("(hidden)"));
        }
    }
}
