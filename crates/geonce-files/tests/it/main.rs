//! Files written by others, read by us and by GDAL's `ogr2ogr`, which these tests need. The public test data is not part of
//! this repository: `GEONCE_CORPORA` names its folder, `../shared/corpora` beside the workspace is the default. Without it
//! the tests say that they were left out; with `GEONCE_REQUIRE_CORPORA=1` they fail.

#![expect(clippy::unwrap_used, reason = "a tree that cannot be read should fail the test")]
#![expect(clippy::panic, reason = "a test that cannot go on should fail")]

mod corpora;
mod mutations;
mod ogr;
mod written;
