//! Which EPSG code the text of a .prj means.

use crate::Declared;

/// How much of a text that is not known is told.
const SHOWN_CHARACTERS_MAX: usize = 200;

pub(crate) fn declared(text: &str) -> Declared {
    match geonce_key::crs::parse(text.trim()) {
        Ok(crs) => Declared::Code(crs.code()),
        Err(_) => Declared::Unknown(text.trim().chars().take(SHOWN_CHARACTERS_MAX).collect()),
    }
}
