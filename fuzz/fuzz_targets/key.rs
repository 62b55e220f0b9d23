//! Keys never panic under any policy, and the canonical geometry is its own canonical form.
#![no_main]

use geonce_key::policy::{Dimensions, Field, Identity, Lines, Parts, Unicode};
use geonce_key::{Input, Keyer, Pointer, Policy};
use libfuzzer_sys::fuzz_target;

fn policy(flags: u8, precision: u8) -> Policy {
    let pointer = Pointer::parse("/properties/a").expect("a pointer");
    let mut policy = Policy { precision: precision % 10, precision_z: precision / 10 % 10, ..Policy::default() };
    policy.accept.types = (flags & 1 != 0).then(|| vec!["null".to_owned(), "Polygon".to_owned(), "Point".to_owned()]);
    policy.lines = if flags & 2 != 0 { Lines::Undirected } else { Lines::Directed };
    policy.parts = if flags & 4 != 0 { Parts::Ordered } else { Parts::Sorted };
    policy.unicode = if flags & 8 != 0 { Unicode::Nfc } else { Unicode::Exact };
    policy.close_rings = flags & 16 != 0;
    policy.dimensions = if flags & 32 != 0 { Dimensions::Two } else { Dimensions::Delivered };
    policy.approximate_crs = true;
    if flags & 64 != 0 {
        policy.identity = Identity::Fields(vec![Field { at: pointer.clone(), optional: true, decimals: Some(2) }]);
    }
    if flags & 128 != 0 {
        policy.previous = Some(Box::new(Policy::default()));
    }
    policy
}

fuzz_target!(|bytes: &[u8]| {
    let [flags, precision, payload @ ..] = bytes else { return };
    let policy = policy(*flags, *precision);
    let mut keyer = Keyer::new(&policy).expect("a valid policy");
    let Ok(keyed) = keyer.key(Input::json(payload)) else { return };
    let canonical = String::from_utf8(keyer.canonical_bytes().to_vec()).expect("canonical bytes are text");
    let start = "{\"geometry\":".len();
    let end = canonical.find(",\"identity\":").expect("the identity follows");
    let geometry = canonical[start..end].to_owned();
    // A collapsed shape is too short to be delivered.
    if geometry == "null" || !keyed.warnings.is_empty() {
        return;
    }
    let alone = Policy { identity: Identity::Whole { ignore: Vec::new() }, previous: None, ..policy };
    let mut again = Keyer::new(&alone).expect("a valid policy");
    if again.key(Input::json(geometry.as_bytes())).is_ok() {
        let bytes = String::from_utf8(again.canonical_bytes().to_vec()).expect("canonical bytes are text");
        assert_eq!(&bytes[start..bytes.find(",\"identity\":").expect("the identity follows")], geometry);
    }
});
