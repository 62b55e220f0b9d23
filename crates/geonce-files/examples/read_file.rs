//! Reads a file to its end and tells what is in it, how fast that was and how much memory it took:
//! `cargo run --release -p geonce-files --example read_file -- parcels.shp`.

#![expect(clippy::print_stdout, reason = "an example that prints")]
#![expect(clippy::disallowed_methods, reason = "measures time")]

use geonce_files::{Item, Options, content, open};
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("which file?")?);
    let options = Options::default();
    let begun = Instant::now();
    let digest = content(&path, &options)?;
    println!("digest of {} bytes in {:?}", digest.bytes, begun.elapsed());
    let begun = Instant::now();
    let mut file = open(&path, &options)?;
    println!("{:?} opened in {:?}: {:?}", file.format, begun.elapsed(), file.layer);
    let begun = Instant::now();
    let (mut rows, mut bad, mut positions) = (0_u64, 0_u64, 0);
    while let Some(item) = file.rows.next()? {
        match item {
            Item::Row(row) => {
                rows += 1;
                positions += row.geometry.map_or(0, |shape| shape.positions.len());
            }
            Item::Bad(wrong) => {
                bad += 1;
                println!("{}: {} {}", wrong.number, wrong.code, wrong.message);
            }
        }
    }
    println!("{rows} rows with {positions} positions, {bad} bad, in {:?}", begun.elapsed());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default());
    Ok(())
}
