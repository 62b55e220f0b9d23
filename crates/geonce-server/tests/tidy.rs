//! Keeps the mechanical part of the style honest: file sizes, headers, crate direction, the README's length.

#![expect(clippy::unwrap_used, reason = "a tree that cannot be read should fail the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// Look again above 500 lines, split by 800.
const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() && name != "target" && !name.starts_with('.') {
            files(&entry, ending, found);
        } else if name.ends_with(ending) {
            found.push(entry);
        }
    }
}

#[test]
fn every_source_file_says_what_it_is_and_can_be_held_in_mind() {
    let mut sources = Vec::new();
    for folder in ["crates", "bench", "fuzz"] {
        files(&root().join(folder), ".rs", &mut sources);
    }
    assert!(sources.len() > 50, "the sources were not found");
    for source in sources {
        let text = fs::read_to_string(&source).unwrap();
        assert!(text.starts_with("//!"), "{} has no header", source.display());
        assert!(text.lines().count() <= LINES_MAX, "{} has more than {LINES_MAX} lines", source.display());
    }
}

#[test]
fn the_key_crate_knows_nothing_of_the_others() {
    let manifest = fs::read_to_string(root().join("crates/geonce-key/Cargo.toml")).unwrap();
    for forbidden in ["geonce-server", "tokio", "hyper", "clap", "toml ="] {
        assert!(!manifest.contains(forbidden), "geonce-key depends on {forbidden}");
    }
    let mut sources = Vec::new();
    files(&root().join("crates/geonce-key/src"), ".rs", &mut sources);
    for source in sources {
        let text = fs::read_to_string(&source).unwrap();
        for forbidden in ["std::fs", "std::net", "std::thread", "std::env", "SystemTime", "Instant::now", "println!"] {
            assert!(!text.contains(forbidden), "{} uses {forbidden}", source.display());
        }
    }
}

#[test]
fn the_readme_can_be_read_in_one_go() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 120);
    for link in readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(root().join(link).exists(), "the README links to {link}, which is not there");
    }
}

#[test]
fn every_benchmark_is_listed_and_so_is_built() {
    let manifest = fs::read_to_string(root().join("bench/Cargo.toml")).unwrap();
    for program in fs::read_dir(root().join("bench/src/bin")).unwrap() {
        let name = program.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        assert!(manifest.contains(&format!("name = \"{name}\"")), "bench/Cargo.toml does not list {name}");
    }
}
