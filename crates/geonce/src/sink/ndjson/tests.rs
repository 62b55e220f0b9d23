//! Lines, and what crashes, rotation and other programs do to them.

use crate::error::Kind;
use crate::event::{Class, Outcome};
use crate::sink::conformance::{self, Maker, Place};
use crate::sink::{Merge, Mode, Options, Sink, Written};
use crate::store::Answer;
use bytes::Bytes;
use geonce_key::{Form, Input, Policy, Reader};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

struct Folder {
    folder: TempDir,
}

impl Folder {
    fn new() -> Folder {
        Folder { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("events.ndjson")
    }

    fn sink(&self, options: &Options) -> crate::Result<Arc<dyn Sink>> {
        crate::sink::open("lines", "ndjson:events.ndjson", options, self.folder.path())
    }

    fn append_raw(&self, bytes: &[u8]) {
        fs::OpenOptions::new().append(true).open(self.path()).unwrap().write_all(bytes).unwrap();
    }

    fn lines(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.path()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "no torn line");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn keys(&self) -> Vec<String> {
        self.lines().iter().filter_map(|line| Some(line["key"].as_str()?.to_owned())).collect()
    }
}

impl Place for Folder {
    fn open(&self, mode: Mode) -> Answer<'_, Arc<dyn Sink>> {
        Box::pin(async move { self.sink(&Options { mode, ..Options::default() }) })
    }

    fn rows(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move { Ok(self.keys()) })
    }
}

const APPLIED: Written = Written::Done(Outcome::Applied);

#[tokio::test]
async fn it_keeps_the_contract_of_a_sink_of_events() {
    conformance::append(Folder::new).await;
}

#[tokio::test]
async fn a_line_is_the_payload_on_one_line() {
    let place = Folder::new();
    let sink = place.sink(&Options::default()).unwrap();
    let maker = Maker::new();
    let event = maker.event(
        "{ \"type\": \"Feature\",\r\n\t\"id\" : \"a \\\" \\\\\" , \"geometry\": {\"type\":\"Point\",\"coordinates\":[ 1.50, 2e0 ]},\n\
         \"properties\": {\"text\": \" two  blanks \", \"list\": [ 1, 2 ]} }",
    );
    assert_eq!(sink.write(vec![event.clone()]).await.unwrap(), [APPLIED]);
    let text = fs::read_to_string(place.path()).unwrap();
    let expected = format!(
        "{{\"key\":\"{}\",\"event\":\"{}\",\"source\":\"fleet\",\"received\":\"2026-11-15T00:00:00.000Z\",\"feature\":\
         {{\"type\":\"Feature\",\"id\":\"a \\\" \\\\\",\"geometry\":{{\"type\":\"Point\",\"coordinates\":[1.50,2e0]}},\
         \"properties\":{{\"text\":\" two  blanks \",\"list\":[1,2]}}}}}}\n",
        event.key.text(geonce_key::Encoding::Base64),
        event.event
    );
    assert_eq!(text, expected);
}

#[tokio::test]
async fn text_and_binary_geometries_become_features_in_wgs84() {
    let place = Folder::new();
    let sink = place.sink(&Options::default()).unwrap();
    let maker = Maker::new();
    let cases = [
        ("SRID=3857;POINT(0 0)", r#"{"type":"Point","coordinates":[0.0,0.0]}"#),
        ("POINT Z(1 2 3)", r#"{"type":"Point","coordinates":[1.0,2.0,3.0]}"#),
        ("MULTIPOINT(1 2,3 4)", r#"{"type":"MultiPoint","coordinates":[[1.0,2.0],[3.0,4.0]]}"#),
        ("LINESTRING(1 2,3 4)", r#"{"type":"LineString","coordinates":[[1.0,2.0],[3.0,4.0]]}"#),
        (
            "MULTIPOLYGON(((0 0,0 4,4 4,0 0),(1 2,1 3,2 3,1 2)))",
            r#"{"type":"MultiPolygon","coordinates":[[[[0.0,0.0],[4.0,4.0],[0.0,4.0],[0.0,0.0]],[[1.0,2.0],[1.0,3.0],[2.0,3.0],[1.0,2.0]]]]}"#,
        ),
        (
            "GEOMETRYCOLLECTION(POINT(1 2),MULTILINESTRING((1 2,3 4),(5 6,7 8)))",
            r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1.0,2.0]},{"type":"MultiLineString","coordinates":[[[1.0,2.0],[3.0,4.0]],[[5.0,6.0],[7.0,8.0]]]}]}"#,
        ),
    ];
    let mut reader = Reader::new(&Policy::default(), None).unwrap();
    for (n, (text, expected)) in cases.into_iter().enumerate() {
        let mut event = maker.point(n);
        event.form = Form::Wkt;
        event.feature = reader.read(Input { form: Form::Wkt, bytes: text.as_bytes(), crs: None }).unwrap();
        event.payload = Bytes::from_static(b"unused");
        assert_eq!(sink.write(vec![event]).await.unwrap(), [APPLIED], "{text}");
        let line = place.lines().pop().unwrap();
        assert_eq!(line["feature"]["geometry"], serde_json::from_str::<serde_json::Value>(expected).unwrap(), "{text}");
        assert_eq!(line["feature"]["type"], "Feature");
    }
}

#[tokio::test]
async fn a_torn_line_is_cut_off_and_said() {
    let place = Folder::new();
    let maker = Maker::new();
    let events: Vec<_> = (0..3).map(|n| maker.point(n)).collect();
    place.sink(&Options::default()).unwrap().write(events[..2].to_vec()).await.unwrap();
    let whole = fs::read(place.path()).unwrap();
    // Torn after every byte, within a line as long as several chunks.
    let long = format!(r#"{{"key":"{}","event":"{}","text":"{}"#, "g1_x", events[2].event, "y".repeat(150_000));
    for torn in [1, 20, 70, long.len()] {
        place.append_raw(&long.as_bytes()[..torn]);
        let sink = place.sink(&Options::default()).unwrap();
        let notices = sink.check().await.unwrap();
        assert!(notices.len() == 1 && notices[0].contains(&format!("{torn} bytes")), "{notices:?}");
        assert_eq!(fs::read(place.path()).unwrap(), whole);
        assert!(sink.check().await.unwrap().is_empty(), "said once");
    }
    let sink = place.sink(&Options::default()).unwrap();
    sink.write(events.clone()).await.unwrap();
    assert_eq!(place.keys().len(), 3);
}

#[tokio::test]
async fn lines_that_the_keys_do_not_know_yet_are_not_doubled() {
    let place = Folder::new();
    let maker = Maker::new();
    let events: Vec<_> = (0..40).map(|n| maker.point(n)).collect();
    let keys = place.path().with_extension("ndjson.keys");
    let sink = place.sink(&Options::default()).unwrap();
    sink.write(events[..10].to_vec()).await.unwrap();
    sink.close().await.unwrap();
    fs::copy(&keys, place.path().with_extension("old")).unwrap();
    sink.write(events[10..30].to_vec()).await.unwrap();
    drop(sink);
    // As after a power cut that took the keys of the last batches, but not their lines.
    fs::rename(place.path().with_extension("old"), &keys).unwrap();
    let sink = place.sink(&Options::default()).unwrap();
    let known = sink.proofs(events.iter().map(|event| event.key).collect()).await.unwrap().unwrap();
    assert_eq!(known.iter().filter(|known| **known).count(), 30);
    sink.write(events.clone()).await.unwrap();
    assert_eq!(place.keys().len(), 40);
    drop(sink);
    // And as after somebody deleted them.
    fs::remove_file(&keys).unwrap();
    place.append_raw(b"{\"somebody\":\"else\"}\n\n");
    let sink = place.sink(&Options::default()).unwrap();
    sink.write(events.clone()).await.unwrap();
    assert_eq!(fs::read_to_string(place.path()).unwrap().lines().filter(|line| line.contains("g1_")).count(), 40);
    assert!(sink.check().await.unwrap()[0].contains("1 lines were not written by this sink"));
}

#[tokio::test]
async fn a_rotated_file_is_followed_and_nothing_is_written_again() {
    let place = Folder::new();
    let maker = Maker::new();
    let events: Vec<_> = (0..6).map(|n| maker.point(n)).collect();
    let sink = place.sink(&Options::default()).unwrap();
    sink.write(events[..2].to_vec()).await.unwrap();
    let rotated = place.folder.path().join("events.1");
    fs::rename(place.path(), &rotated).unwrap();
    sink.write(events[..4].to_vec()).await.unwrap();
    assert_eq!(place.keys().len(), 2, "only what is new");
    assert_eq!(fs::read_to_string(&rotated).unwrap().lines().count(), 2);
    fs::File::options().write(true).open(place.path()).unwrap().set_len(0).unwrap();
    sink.write(events.clone()).await.unwrap();
    assert_eq!(place.keys().len(), 2, "emptied in place");
    drop(sink);
    fs::remove_file(place.path()).unwrap();
    let sink = place.sink(&Options::default()).unwrap();
    sink.write(events).await.unwrap();
    assert!(place.keys().is_empty());
}

#[tokio::test]
async fn what_a_file_cannot_do_is_refused() {
    let place = Folder::new();
    for options in [
        Options { mode: Mode::Upsert { arrival: true }, ..Options::default() },
        Options { layer: Some("zones".into()), ..Options::default() },
        Options { crs: 3857, ..Options::default() },
        Options { allow: vec!["10.0.0.0/8".into()], ..Options::default() },
    ] {
        assert_eq!(place.sink(&options).err().unwrap().kind(), Kind::Invalid);
    }
    fs::create_dir(place.path()).unwrap();
    assert_eq!(place.sink(&Options::default()).err().unwrap().kind(), Kind::Invalid);
}

#[tokio::test]
async fn a_second_process_and_a_foreign_file_of_keys_are_refused() {
    let place = Folder::new();
    let options = Options { timeout: Duration::from_millis(50), ..Options::default() };
    let sink = place.sink(&options).unwrap();
    let second = place.sink(&options).unwrap();
    assert_eq!(second.check().await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(second.write(vec![Maker::new().point(1)]).await.unwrap_err().kind(), Kind::Unavailable);
    drop(sink);
    second.check().await.unwrap();
    drop(second);
    let keys = place.path().with_extension("ndjson.keys");
    fs::write(&keys, "this is no database, and long enough to be sure of it".repeat(20)).unwrap();
    assert_eq!(place.sink(&options).err().unwrap().kind(), Kind::Incompatible);
}

#[tokio::test]
async fn a_payload_that_would_break_its_line_is_dead() {
    let place = Folder::new();
    let sink = place.sink(&Options::default()).unwrap();
    let maker = Maker::new();
    let mut event = maker.point(1);
    event.payload = Bytes::from_static(b"{\"a\":\"b\nc\"}");
    let written = sink.write(vec![event, maker.point(2)]).await.unwrap();
    assert!(matches!(&written[0], Written::Dead(cause) if cause.class == Class::Schema), "{written:?}");
    assert_eq!(written[1], APPLIED);
    assert_eq!(place.keys().len(), 1);
}

#[tokio::test]
async fn what_goes_into_a_row_has_no_place_among_lines() {
    let (place, maker) = (Folder::new(), Maker::new());
    let sink = place.sink(&Options::default()).unwrap();
    let (first, mut second) = (maker.point(1), maker.point(2));
    second.merge = Some(Merge { into: first.key.key(), mean: false });
    let written = sink.write(vec![first.clone(), second]).await.unwrap();
    assert_eq!(written[0], Written::Done(Outcome::Applied));
    assert!(matches!(&written[1], Written::Dead(cause) if cause.class == Class::Schema && cause.code == "merge"));
    assert_eq!(place.lines().len(), 1);
}
