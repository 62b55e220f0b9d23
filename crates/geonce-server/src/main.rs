//! The `geonce` command.
fn main() {}
