//! Arguments of the benchmark programs: words, and `--name value` pairs in any order.

use std::collections::BTreeMap;
use std::str::FromStr;

/// What was given on the command line.
pub struct Arguments {
    words: Vec<String>,
    pairs: BTreeMap<String, String>,
}

impl Arguments {
    /// Reads this process's command line.
    pub fn read() -> Result<Arguments, String> {
        let (mut words, mut pairs) = (Vec::new(), BTreeMap::new());
        let mut given = std::env::args().skip(1);
        while let Some(argument) = given.next() {
            match argument.strip_prefix("--") {
                Some(name) => {
                    let value = given.next().ok_or_else(|| format!("--{name} needs a value"))?;
                    pairs.insert(name.to_owned(), value);
                }
                None => words.push(argument),
            }
        }
        Ok(Arguments { words, pairs })
    }

    /// The word at this place.
    pub fn word(&self, place: usize) -> Result<&str, String> {
        self.words.get(place).map(String::as_str).ok_or_else(|| format!("argument {} is missing", place + 1))
    }

    /// The value of `--name`, or the default.
    pub fn value<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.pairs.get(name) {
            Some(text) => text.parse().map_err(|_| format!("--{name} {text} cannot be read")),
            None => Ok(default),
        }
    }
}
