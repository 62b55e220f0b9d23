//! Bulk destinations beside `ogr2ogr`: features from memory into a GeoPackage and into PostGIS, then the same GeoPackage by
//! `ogr2ogr` into both. What comes before a destination (reading, keying) is not measured here.
//!
//! Usage: `load_target [--points 1000000] [--polygons 200000]`

use geonce::clock::{Clock, Stopwatch, SystemClock};
use geonce::event::Ids;
use geonce::load::target::{Mode, Piece, Plan, Tally, open};
use geonce_bench::arguments::Arguments;
use geonce_files::{Field, FieldKind};
use geonce_key::{Fingerprint, Limits, Property, Version, wkt};
use geonce_services::Postgres;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

const BATCH: u64 = 2_000;
const VERTICES: u32 = 20;

#[derive(Clone, Copy)]
enum Kind {
    Points,
    Polygons,
}

fn piece(kind: Kind, number: u64, version: i128) -> Piece {
    let mut text = String::new();
    let chance: [u8; 32] = Sha256::digest(number.to_be_bytes()).into();
    let part = |at: usize| f64::from(u32::from_be_bytes([chance[at], chance[at + 1], chance[at + 2], chance[at + 3]]));
    let (x, y) = (part(0) / 2f64.powi(32) * 358.0 - 179.0, part(4) / 2f64.powi(32) * 178.0 - 89.0);
    match kind {
        Kind::Points => drop(write!(text, "POINT({x:.7} {y:.7})")),
        Kind::Polygons => {
            text.push_str("POLYGON((");
            for vertex in 0..=VERTICES {
                let angle = f64::from(vertex % VERTICES) / f64::from(VERTICES) * std::f64::consts::TAU;
                let comma = if vertex > 0 { "," } else { "" };
                let _ = write!(text, "{comma}{:.7} {:.7}", x + 0.01 * angle.cos(), y + 0.01 * angle.sin());
            }
            text.push_str("))");
        }
    }
    let content: [u8; 32] = Sha256::digest(format!("{number} {version}")).into();
    Piece {
        number,
        key: Fingerprint::from_digest(content, false),
        entity: Some(Fingerprint::from_digest(chance, false)),
        version: Some(Version::Integer(version)),
        content,
        geometry: wkt::read(text.as_bytes(), &Limits::default()).ok().map(|found| found.shape),
        values: vec![
            Property::Text(format!("name of {number}")),
            Property::Integer(i64::try_from(number).unwrap_or(0)),
            Property::Real(part(8)),
            Property::Text("2024-05-01T10:20:30Z".to_owned()),
        ],
    }
}

/// One load; seconds for rows, and for the end. One feature in `every` has changed.
async fn load(
    url: &str,
    folder: &Path,
    (kind, count): (Kind, u64),
    (name, mode): (&str, Mode),
    every: u64,
) -> Result<(f64, f64, Tally), Failure> {
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<Vec<Piece>>(8);
    std::thread::spawn(move || {
        for start in (0..count).step_by(usize::try_from(BATCH).unwrap_or(1)) {
            let version = |number: u64| if number.is_multiple_of(every) { 2 } else { 1 };
            let batch = (start..count.min(start + BATCH)).map(|number| piece(kind, number, version(number))).collect();
            if sender.blocking_send(batch).is_err() {
                return;
            }
        }
    });
    let field = |name: &str, kind| Field { name: name.to_owned(), kind };
    let plan = Plan {
        layer: "features".to_owned(),
        mode,
        crs: None,
        fields: vec![
            field("name", FieldKind::Text),
            field("number", FieldKind::Integer),
            field("share", FieldKind::Real),
            field("seen", FieldKind::DateTime),
        ],
        expected: 0,
        load: Fingerprint::from_digest(Sha256::digest(name).into(), false),
        event: Ids::new().next(SystemClock.now()),
        begun: SystemClock.now(),
        again: false,
        timeout: Duration::from_mins(2),
    };
    let watch = Stopwatch::start();
    let mut target = open(url, plan, folder).await?;
    while let Some(batch) = receiver.recv().await {
        let refused = target.write(batch).await?;
        if !refused.is_empty() {
            return Err(format!("refused: {:?}", refused[0]).into());
        }
    }
    let rows = watch.elapsed().as_secs_f64();
    let tally = target.finish(count, Box::new(|_| String::new())).await?;
    Ok((rows, watch.elapsed().as_secs_f64() - rows, tally))
}

fn ogr2ogr(arguments: &[&str]) -> Result<f64, Failure> {
    let watch = Stopwatch::start();
    let status = Command::new("ogr2ogr").args(arguments).args(["--config", "PG_USE_COPY", "YES"]).status()?;
    if status.success() { Ok(watch.elapsed().as_secs_f64()) } else { Err("ogr2ogr failed".into()) }
}

fn memory_peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1_024
}

async fn compare(name: &str, kind: Kind, count: u64) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("geonce-load-target-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let server = Postgres::start(&[]);
    let (first, second, third) = (server.database(), server.database(), server.database());
    let tell = |what: &str, (rows, end, tally): (f64, f64, Tally)| {
        println!("{name}, {what}: {:.2} s (rows {rows:.2}, end {end:.2}) {tally:?}", rows + end);
    };
    let load = async |url: &str, what, every| load(url, &folder, (kind, count), what, every).await;
    tell("GeoPackage", load("gpkg:ours.gpkg", ("a", Mode::Append), u64::MAX).await?);
    println!("peak memory {} MB", memory_peak_megabytes());
    let (ours, theirs) = (folder.join("ours.gpkg"), folder.join("theirs.gpkg"));
    let (ours, theirs) = (ours.display().to_string(), theirs.display().to_string());
    println!("{name}, ogr2ogr to GeoPackage: {:.2} s", ogr2ogr(&["-f", "GPKG", &theirs, &ours])?);
    tell("PostGIS", load(&first, ("a", Mode::Append), u64::MAX).await?);
    println!("{name}, ogr2ogr to PostGIS: {:.2} s", ogr2ogr(&["-f", "PostgreSQL", &format!("PG:{second}"), &ours])?);
    let upsert = Mode::Upsert { arrival: false };
    tell("PostGIS, upsert", load(&third, ("a", upsert), u64::MAX).await?);
    tell("PostGIS, upsert of 1 %", load(&third, ("b", upsert), 100).await?);
    tell("PostGIS, replace", load(&first, ("b", Mode::Replace), u64::MAX).await?);
    tell("GeoPackage, upsert", load("gpkg:entities.gpkg", ("a", upsert), u64::MAX).await?);
    tell("GeoPackage, upsert of 1 %", load("gpkg:entities.gpkg", ("b", upsert), 100).await?);
    println!("peak memory {} MB", memory_peak_megabytes());
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    compare("points", Kind::Points, arguments.value("points", 1_000_000)?).await?;
    compare("polygons", Kind::Polygons, arguments.value("polygons", 200_000)?).await
}
