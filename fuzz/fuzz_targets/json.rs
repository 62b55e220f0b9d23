//! The JSON reader and the splitter never panic, and agree on every text whatever the pieces it arrives in.
#![no_main]

use geonce_key::split::{Format, Splitter};
use geonce_key::{Input, Keyer, Limits, Policy};
use libfuzzer_sys::fuzz_target;

fn found(bytes: &[u8], piece: usize) -> Vec<Result<Vec<u8>, &'static str>> {
    let mut splitter = Splitter::new(Format::Auto, false, &Limits::default());
    let mut out = Vec::new();
    let mut pieces = bytes.chunks(piece);
    loop {
        while let Some(next) = splitter.next() {
            out.push(match next {
                Ok(item) => Ok(splitter.bytes(&item).to_vec()),
                Err(broken) => Err(broken.error.code().as_str()),
            });
        }
        match pieces.next() {
            Some(piece) => splitter.feed(piece),
            None => {
                splitter.finish();
                while let Some(next) = splitter.next() {
                    out.push(match next {
                        Ok(item) => Ok(splitter.bytes(&item).to_vec()),
                        Err(broken) => Err(broken.error.code().as_str()),
                    });
                }
                return out;
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut keyer = Keyer::new(&Policy::default()).expect("the default policy");
    let _ = keyer.key(Input::json(bytes));
    assert_eq!(found(bytes, 1 << 20), found(bytes, 3));
});
