//! Repairs every polygon of a file of GeoJSON lines on one thread: reading, the grid, the repair, and writing it again.
//! Prints what that took and what it came to, as JSON; `bench/repair.py` puts it beside shapely.

use geonce::clock::Stopwatch;
use geonce_key::repair::{Options, repair};
use geonce_key::{Input, Policy, Reader, geojson};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: repair FILE")?;
    let bytes = std::fs::read(file)?;
    let policy = Policy::default();
    let mut reader = Reader::new(&policy, None)?;
    let (mut whole, mut alone) = (0.0, 0.0);
    let (mut repaired, mut refused, mut area_doubled, mut out) = (0_u64, 0_u64, 0_i128, Vec::new());
    for line in geonce_bench::lines(&bytes) {
        let watch = Stopwatch::start();
        let feature = reader.read(Input::json(line))?;
        let Some(shape) = feature.geometry else { continue };
        let grid = shape.to_grid(policy.precision, policy.precision_z)?;
        let repairing = Stopwatch::start();
        match repair(&grid, &Options::default(), &policy.limits) {
            Ok(made) => {
                alone += repairing.elapsed().as_secs_f64();
                repaired += 1;
                area_doubled += made.area_after;
                out.clear();
                geojson::write(&made.shape.to_degrees(policy.precision, policy.precision_z), &mut out);
            }
            Err(_) => refused += 1,
        }
        whole += watch.elapsed().as_secs_f64();
    }
    let mut stdout = std::io::stdout();
    writeln!(
        stdout,
        "{{\"repaired\":{repaired},\"refused\":{refused},\"area_doubled\":\"{area_doubled}\",\"seconds\":{whole},\"seconds_repairing\":{alone}}}"
    )?;
    Ok(())
}
