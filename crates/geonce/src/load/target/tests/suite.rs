//! What every destination promises.

use super::{Place, digest, field, finish, load, piece, pieces, plan, renamed, shaped};
use crate::error::Kind;
use crate::event::Outcome;
use crate::load::target::{Mode, Standing, Tally};
use crate::sink::Written;
use geonce_files::FieldKind;
use geonce_key::{Fingerprint, Property, Version};
use std::time::Duration;

/// Makes of each promise a test for each kind of place.
macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        mod of_a_file { $(#[tokio::test] async fn $name() { super::$name(super::Place::file()).await; })+ }
        mod of_a_database { $(#[tokio::test] async fn $name() { super::$name(super::Place::schema()).await; })+ }
        mod of_a_pooler { $(#[tokio::test] async fn $name() { super::$name(super::Place::pooled()).await; })+ }
    };
}

promises! {
    a_load_is_there_when_it_is_finished,
    a_load_that_is_in_is_known_and_not_done_again,
    a_load_that_is_dropped_leaves_nothing,
    a_load_that_is_done_again_takes_the_place_of_its_rows,
    parts_are_kept_and_the_load_goes_on_after_the_last,
    what_becomes_of_entities_is_told,
    the_later_feature_of_an_entity_wins_without_versions,
    versions_decide_between_features_of_one_file,
    many_entities_are_told_apart_as_few_are,
    a_sink_and_a_load_meet_at_the_entity,
    a_layer_is_replaced_in_one_moment,
    a_replacing_load_goes_on_after_its_last_part,
    a_layer_that_is_replaced_knows_its_entities,
    two_runners_make_one_load,
    loads_of_other_files_are_added,
    values_have_the_types_of_their_fields,
    what_has_no_column_is_kept,
    many_fields_are_many_columns,
    a_layer_keeps_its_coordinate_system,
    every_kind_of_geometry_and_none_are_taken,
}

async fn a_load_is_there_when_it_is_finished(place: Place) {
    let mut target = place.open(&plan("a", Mode::Append)).await.unwrap();
    assert_eq!(target.crs(), 4326);
    for start in [1, 101, 201] {
        assert!(target.write(pieces(start..start + 100)).await.unwrap().is_empty());
    }
    let tally = finish(&mut target, 300).await;
    assert_eq!(tally, Tally { inserted: 300, ..Tally::default() });
    let standing = target.standing();
    assert_eq!((standing.features, standing.result.as_deref()), (300, Some("300 rows")));
    assert_eq!(place.count("zones"), 300);
    assert_eq!(place.ask("SELECT name, size FROM zones ORDER BY fid LIMIT 2"), ["zone 1|1", "zone 2|2"]);
    let keys = "SELECT count(DISTINCT geonce_key), count(DISTINCT geonce_event) FROM zones";
    assert_eq!(place.ask(keys), ["300|1"]);
    if place.is_file() {
        assert_eq!(place.ask("SELECT count(*) FROM rtree_zones_geom"), ["300"]);
        assert_eq!(place.ask("SELECT rtreecheck('rtree_zones_geom')"), ["ok"]);
        assert_eq!(place.ask("SELECT min_x, min_y, max_x, max_y FROM gpkg_contents"), ["0|0|179|89"]);
    } else {
        let sql = "SELECT count(*) FROM pg_indexes WHERE tablename = 'zones' AND schemaname = current_schema()";
        assert_eq!(place.ask(sql), ["3"]);
        assert_eq!(place.ask("SELECT ST_SRID(geom), ST_AsText(geom) FROM zones WHERE size = 7"), ["4326|POINT(7 7)"]);
    }
}

async fn a_load_that_is_in_is_known_and_not_done_again(place: Place) {
    let first = plan("a", Mode::Append);
    load(&place, &first, pieces(1..11)).await;
    let second = place.open(&plan("a", Mode::Append)).await.unwrap();
    let standing = second.standing();
    assert_eq!(standing.result.as_deref(), Some("10 rows"));
    assert_eq!((standing.features, standing.tally.inserted), (10, 10));
    drop(second);
    assert_eq!(place.count("zones"), 10);
}

async fn a_load_that_is_dropped_leaves_nothing(place: Place) {
    let mut target = place.open(&plan("a", Mode::Append)).await.unwrap();
    target.write(pieces(1..500)).await.unwrap();
    drop(target);
    if let Place::File(folder) = &place {
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    } else {
        assert!(!place.has("zones"));
    }
    // And in a layer that is there.
    load(&place, &plan("b", Mode::Append), pieces(1..11)).await;
    for mode in [Mode::Append, Mode::Upsert { arrival: true }, Mode::Replace] {
        let mut target = place.open(&plan("c", mode)).await.unwrap();
        target.write(pieces(11..500)).await.unwrap();
        drop(target);
        assert_eq!(place.count("zones"), 10, "{mode:?}");
        assert!(!place.has("%staging%"), "{mode:?}");
    }
    let (tally, _) = load(&place, &plan("c", Mode::Append), pieces(11..21)).await;
    assert_eq!(tally.inserted, 10);
    assert_eq!(place.count("zones"), 20);
}

async fn a_load_that_is_done_again_takes_the_place_of_its_rows(place: Place) {
    load(&place, &plan("a", Mode::Append), pieces(1..11)).await;
    load(&place, &plan("b", Mode::Append), pieces(11..21)).await;
    let mut again = plan("a", Mode::Append);
    again.again = true;
    load(&place, &again, pieces(1..6)).await;
    assert_eq!(place.ask("SELECT count(*), max(size), sum(size) FROM zones"), [format!("15|20|{}", 15 + 155)]);
    if place.is_file() {
        assert_eq!(place.ask("SELECT count(*) FROM rtree_zones_geom"), ["15"]);
    }
    assert_eq!(place.open(&plan("a", Mode::Append)).await.unwrap().standing().tally.inserted, 5);
}

async fn parts_are_kept_and_the_load_goes_on_after_the_last(place: Place) {
    for mode in [Mode::Append, Mode::Upsert { arrival: true }] {
        let name = format!("{mode:?}");
        let mut this = plan(&name, mode);
        this.layer = format!("zones_{}", mode.as_str());
        let mut target = place.open(&this).await.unwrap();
        let mut behind = 0;
        // Each time a part is committed, more is written, and the runner is gone.
        for part in 0..4 {
            assert_eq!(target.standing().features, behind);
            target.write(pieces(behind + 1..behind + 101)).await.unwrap();
            target.commit(behind + 100, format!("after {part}")).await.unwrap();
            behind += 100;
            assert_eq!(place.count(&this.layer), behind);
            target.write(pieces(behind + 1..behind + 51)).await.unwrap();
            drop(target);
            assert_eq!(place.count(&this.layer), behind);
            target = place.open(&plan_like(&this)).await.unwrap();
            let tally = Tally { inserted: behind, ..Tally::default() };
            let notes = format!("after {part}");
            assert_eq!(target.standing(), &Standing { result: None, features: behind, tally, notes });
        }
        let tally = finish(&mut target, behind).await;
        assert_eq!(tally.inserted, behind);
        assert_eq!(place.count(&this.layer), behind);
        assert_eq!(place.ask(&format!("SELECT count(DISTINCT geonce_event) FROM {}", this.layer)), ["1"]);
        if place.is_file() {
            let rtree = format!("rtree_{}_geom", this.layer);
            assert_eq!(place.ask(&format!("SELECT count(*) FROM {rtree}")), [behind.to_string()]);
            assert_eq!(place.ask(&format!("SELECT rtreecheck('{rtree}')")), ["ok"]);
        }
    }
}

/// The same load, run by somebody else.
fn plan_like(plan: &super::Plan) -> super::Plan {
    super::Plan { event: super::plan("", Mode::Append).event, ..plan.clone() }
}

async fn what_becomes_of_entities_is_told(place: Place) {
    let mode = Mode::Upsert { arrival: false };
    let first: Vec<_> = (1..=100).map(|number| renamed(number, 5, "first")).collect();
    let (tally, refused) = load(&place, &plan("a", mode), first).await;
    assert_eq!((tally, refused.len()), (Tally { inserted: 100, ..Tally::default() }, 0));
    let mut second: Vec<_> = (1..=50).map(|number| renamed(number, 5, "first")).collect();
    second.extend((51..=70).map(|number| renamed(number, 6, "second")));
    second.extend((71..=80).map(|number| renamed(number, 4, "older")));
    second.extend((81..=85).map(|number| renamed(number, 5, "other")));
    second.extend((101..=130).map(|number| renamed(number, 1, "new")));
    let mut nobody = renamed(200, 1, "nobody");
    nobody.entity = None;
    second.push(nobody);
    let (tally, refused) = load(&place, &plan("b", mode), second).await;
    assert_eq!(tally, Tally { inserted: 30, updated: 20, unchanged: 50, stale: 10 });
    let told: Vec<(u64, &str)> = refused.iter().map(|one| (one.number, one.cause.code.as_str())).collect();
    assert_eq!(
        told,
        [(81, "conflict"), (82, "conflict"), (83, "conflict"), (84, "conflict"), (85, "conflict"), (200, "entity")]
    );
    let names = "SELECT name, count(*) FROM zones GROUP BY name ORDER BY name";
    assert_eq!(place.ask(names), ["first|80", "new|30", "second|20"]);
    // Unchanged rows are those that were there: the earlier load's.
    assert_eq!(place.ask("SELECT count(*) FROM zones GROUP BY geonce_event ORDER BY 1"), ["50", "80"]);
    if place.is_file() {
        assert_eq!(place.ask("SELECT count(*), rtreecheck('rtree_zones_geom') FROM rtree_zones_geom"), ["130|ok"]);
    }
}

async fn the_later_feature_of_an_entity_wins_without_versions(place: Place) {
    let mode = Mode::Upsert { arrival: true };
    let named = |number, name: &str| {
        let mut piece = renamed(number, 1, name);
        piece.version = None;
        piece
    };
    let (tally, _) = load(&place, &plan("a", mode), vec![named(1, "a"), named(2, "a"), named(1, "b")]).await;
    assert_eq!(tally, Tally { inserted: 2, updated: 1, ..Tally::default() });
    assert_eq!(place.ask("SELECT name FROM zones ORDER BY size"), ["b", "a"]);
    // Back to what it was in the same file: the last one counts, though it is what was there before.
    let (tally, _) = load(&place, &plan("b", mode), vec![named(1, "c"), named(2, "a"), named(1, "b")]).await;
    assert_eq!(tally, Tally { updated: 2, unchanged: 1, ..Tally::default() });
    assert_eq!(place.ask("SELECT name FROM zones ORDER BY size"), ["b", "a"]);
    let (tally, _) = load(&place, &plan("c", mode), vec![named(1, "d"), named(2, "a")]).await;
    assert_eq!(tally, Tally { updated: 1, unchanged: 1, ..Tally::default() });
    assert_eq!(place.ask("SELECT name FROM zones ORDER BY size"), ["d", "a"]);
}

async fn many_entities_are_told_apart_as_few_are(place: Place) {
    let mode = Mode::Upsert { arrival: true };
    let named = |number, name: &str| {
        let mut piece = renamed(number, 1, name);
        piece.version = None;
        piece
    };
    let batches = async |load: &str, batches: Vec<Vec<super::Piece>>| {
        let mut target = place.open(&plan(load, mode)).await.unwrap();
        for batch in batches {
            assert!(target.write(batch).await.unwrap().is_empty());
        }
        finish(&mut target, 0).await
    };
    let firsts = |from: u64| (from..from + 1_000).map(|number| named(number, "first")).collect::<Vec<_>>();
    let mut first: Vec<_> = (0..5).map(|part| firsts(part * 1_000)).collect();
    first.push(vec![named(7, "again"), named(4_999, "again")]);
    first.push(vec![named(7, "first")]);
    let tally = batches("a", first).await;
    assert_eq!(tally, Tally { inserted: 5_000, updated: 3, ..Tally::default() });
    let mut second: Vec<_> = (0..3).map(|part| firsts(part * 1_000)).collect();
    second.push((3_000..3_010).chain(9_000..9_010).map(|number| named(number, "second")).collect());
    second.push(vec![named(3_000, "first"), named(9_000, "second"), named(9_001, "third")]);
    second.push(firsts(4_000));
    let tally = batches("b", second).await;
    assert_eq!(tally, Tally { inserted: 10, updated: 13, unchanged: 4_000, stale: 0 });
    let names = "SELECT name, count(*) FROM zones GROUP BY name ORDER BY name";
    assert_eq!(place.ask(names), ["first|4991", "second|18", "third|1"]);
}

async fn versions_decide_between_features_of_one_file(place: Place) {
    let mode = Mode::Upsert { arrival: false };
    let features =
        vec![renamed(1, 2, "two"), renamed(1, 3, "three"), renamed(1, 1, "one"), renamed(1, 3, "other three")];
    let (tally, refused) = load(&place, &plan("a", mode), features).await;
    assert_eq!(tally, Tally { inserted: 1, updated: 1, unchanged: 0, stale: 1 });
    assert_eq!(refused.len(), 1);
    assert_eq!(place.ask("SELECT name FROM zones"), ["three"]);
    let mut late = renamed(2, 1, "tomorrow");
    late.version = Version::parse("2999-01-01T00:00:00Z");
    let (_, refused) = load(&place, &plan("b", mode), vec![late]).await;
    assert_eq!(refused[0].cause.code, "version_future");
}

async fn a_sink_and_a_load_meet_at_the_entity(place: Place) {
    let mode = Mode::Upsert { arrival: false };
    load(&place, &plan("a", mode), vec![renamed(1, 5, "by file")]).await;
    let options =
        crate::sink::Options { mode: crate::sink::Mode::Upsert { arrival: false }, ..crate::sink::Options::default() };
    let sink = match &place {
        Place::File(folder) => crate::sink::open("zones", "gpkg:layers.gpkg", &options, folder.path()),
        Place::Schema { url, name, .. } => {
            crate::sink::open("zones", &format!("{url}?schema={name}"), &options, std::path::Path::new("."))
        }
    }
    .unwrap();
    let outgoing = |version, name: &str| {
        let piece = renamed(1, version, name);
        let text = format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,1]}},"properties":{{"name":"{name}","size":1}}}}"#
        );
        let mut outgoing = crate::sink::conformance::Maker::new().event(&text);
        (outgoing.key, outgoing.entity, outgoing.version) = (piece.key, piece.entity, piece.version);
        outgoing.content = piece.content;
        outgoing
    };
    let written = sink.write(vec![outgoing(4, "older event"), outgoing(7, "event")]).await.unwrap();
    assert_eq!(written, [Written::Done(Outcome::Stale), Written::Done(Outcome::Applied)]);
    assert_eq!(place.ask("SELECT name FROM zones"), ["event"]);
    sink.close().await.unwrap();
    drop(sink);
    let (tally, _) = load(&place, &plan("b", mode), vec![renamed(1, 6, "older file")]).await;
    assert_eq!(tally.stale, 1);
    let (tally, _) = load(&place, &plan("c", mode), vec![renamed(1, 8, "newer file")]).await;
    assert_eq!(tally.updated, 1);
    assert_eq!(place.ask("SELECT name FROM zones"), ["newer file"]);
}

async fn a_layer_is_replaced_in_one_moment(place: Place) {
    load(&place, &plan("a", Mode::Append), pieces(1..11)).await;
    let mut next = plan("b", Mode::Replace);
    next.fields.push(field("since", FieldKind::Date));
    next.crs = Some(3857);
    let mut target = place.open(&next).await.unwrap();
    assert_eq!(target.crs(), 3857);
    let mut features = pieces(101..131);
    for piece in &mut features {
        piece.values.push(Property::Text("2024-02-29".to_owned()));
    }
    target.write(features).await.unwrap();
    if !place.is_file() {
        assert_eq!(place.count("zones"), 10);
    }
    finish(&mut target, 30).await;
    assert_eq!(place.ask("SELECT count(*), min(size), max(since) FROM zones"), ["30|101|2024-02-29"]);
    assert!(!place.has("%staging%"));
    if place.is_file() {
        assert_eq!(place.ask("SELECT count(*), rtreecheck('rtree_zones_geom') FROM rtree_zones_geom"), ["30|ok"]);
        assert_eq!(place.ask("SELECT table_name, srs_id FROM gpkg_contents"), ["zones|3857"]);
    } else {
        let sql =
            "SELECT indexname FROM pg_indexes WHERE tablename = 'zones' AND schemaname = current_schema() ORDER BY 1";
        assert_eq!(place.ask(sql), ["zones_geom_idx", "zones_geonce_key_idx", "zones_pkey"]);
        assert_eq!(place.ask("SELECT pg_get_serial_sequence('zones', 'fid') LIKE '%.zones_fid_seq'"), ["t"]);
    }
    // It goes on as a layer like any other.
    let (tally, _) = load(&place, &plan("c", Mode::Append), pieces(1..6)).await;
    assert_eq!((tally.inserted, place.count("zones")), (5, 35));
}

async fn a_replacing_load_goes_on_after_its_last_part(place: Place) {
    load(&place, &plan("a", Mode::Append), pieces(1..11)).await;
    let next = plan("b", Mode::Replace);
    let mut target = place.open(&next).await.unwrap();
    for part in 0..3 {
        target.write(pieces(part * 100 + 1..part * 100 + 101)).await.unwrap();
        target.commit((part + 1) * 100, String::new()).await.unwrap();
        assert_eq!(place.count("zones"), 10);
        if place.is_file() {
            assert_eq!(place.ask("SELECT table_name FROM gpkg_contents"), ["zones"]);
        }
        target.write(pieces(900..950)).await.unwrap();
        drop(target);
        target = place.open(&plan_like(&next)).await.unwrap();
        assert_eq!(target.standing().features, (part + 1) * 100);
    }
    finish(&mut target, 300).await;
    assert_eq!(place.ask("SELECT count(*), max(size) FROM zones"), ["300|300"]);
    // One that was left lying is removed by the next that finishes, and begins again.
    let left = plan("c", Mode::Replace);
    let mut target = place.open(&left).await.unwrap();
    target.write(pieces(1..11)).await.unwrap();
    target.commit(10, String::new()).await.unwrap();
    drop(target);
    assert!(place.has("%staging%"));
    load(&place, &plan("d", Mode::Replace), pieces(1..3)).await;
    assert!(!place.has("%staging%"));
    let (tally, _) = load(&place, &left, pieces(1..31)).await;
    assert_eq!((tally.inserted, place.count("zones")), (30, 30));
}

async fn a_layer_that_is_replaced_knows_its_entities(place: Place) {
    let mode = Mode::Upsert { arrival: false };
    load(&place, &plan("a", mode), (1..=10).map(|number| renamed(number, 1, "first")).collect()).await;
    let mut target = place.open(&plan("b", Mode::Replace)).await.unwrap();
    let mut features: Vec<_> = (5..=15).map(|number| renamed(number, 2, "replaced")).collect();
    let mut nobody = piece(99);
    nobody.entity = None;
    features.push(nobody);
    target.write(features).await.unwrap();
    target.commit(12, String::new()).await.unwrap();
    drop(target);
    let mut target = place.open(&plan("b", Mode::Replace)).await.unwrap();
    assert_eq!(finish(&mut target, 12).await.inserted, 12);
    assert_eq!(place.count("zones"), 12);
    let later = vec![
        renamed(7, 3, "later"),
        renamed(8, 2, "replaced"),
        renamed(9, 1, "first"),
        renamed(1, 1, "first"),
        renamed(2, 2, "back"),
    ];
    let (tally, refused) = load(&place, &plan("c", mode), later).await;
    // The first is gone, and stays so at the version it had.
    assert_eq!((tally.unchanged, tally.stale, refused.len()), (2, 1, 0), "{tally:?}");
    let names = "SELECT name, count(*) FROM zones GROUP BY name ORDER BY name";
    assert_eq!(place.ask(names), ["back|1", "later|1", "replaced|10", "zone 99|1"]);
    // Without versions, whoever comes last wins.
    let mut again = renamed(1, 1, "first");
    again.version = None;
    load(&place, &plan("d", Mode::Upsert { arrival: true }), vec![again]).await;
    assert_eq!(place.ask(names), ["back|1", "first|1", "later|1", "replaced|10", "zone 99|1"]);
}

async fn two_runners_make_one_load(place: Place) {
    let mut first = place.open(&plan("a", Mode::Append)).await.unwrap();
    first.write(pieces(1..11)).await.unwrap();
    let (other, mut second) = (plan("a", Mode::Append), None);
    let open = async { second = Some(place.open(&other).await.unwrap()) };
    let ended = async {
        // The other one waits meanwhile.
        tokio::time::sleep(Duration::from_millis(300)).await;
        finish(&mut first, 10).await;
    };
    tokio::join!(open, ended);
    assert_eq!(second.unwrap().standing().result.as_deref(), Some("10 rows"));
    assert_eq!(place.count("zones"), 10);
    // With parts, the one that went on is not disturbed by one that comes back.
    let mut slow = place.open(&plan("b", Mode::Append)).await.unwrap();
    slow.write(pieces(11..21)).await.unwrap();
    slow.commit(10, String::new()).await.unwrap();
    let mut fast = place.open(&plan("b", Mode::Append)).await.unwrap();
    assert_eq!(fast.standing().features, 10);
    fast.write(pieces(21..31)).await.unwrap();
    fast.commit(20, String::new()).await.unwrap();
    let error = slow.write(pieces(21..31)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    drop(slow);
    finish(&mut fast, 20).await;
    assert_eq!(place.count("zones"), 30);
}

async fn loads_of_other_files_are_added(place: Place) {
    load(&place, &plan("a", Mode::Append), pieces(1..11)).await;
    let (tally, _) = load(&place, &plan("b", Mode::Append), pieces(1..11)).await;
    assert_eq!(tally.inserted, 10);
    assert_eq!(place.count("zones"), 20);
    if place.is_file() {
        assert_eq!(place.ask("SELECT count(*), rtreecheck('rtree_zones_geom') FROM rtree_zones_geom"), ["20|ok"]);
    }
}

async fn values_have_the_types_of_their_fields(place: Place) {
    let mut plan = plan("a", Mode::Append);
    plan.fields = vec![
        field("yes", FieldKind::Boolean),
        field("whole", FieldKind::Integer),
        field("part", FieldKind::Real),
        field("text", FieldKind::Text),
        field("day", FieldKind::Date),
        field("moment", FieldKind::DateTime),
        field("any", FieldKind::Json),
    ];
    let text = |text: &str| Property::Text(text.to_owned());
    let mut full = piece(1);
    full.values = vec![
        Property::Boolean(true),
        Property::Integer(i64::MAX),
        Property::Real(0.1),
        text("naïve ☃"),
        text("1899-12-31"),
        text("2024-05-01T10:20:30.5+02:00"),
        Property::Json("[1,{\"a\":null}]".to_owned()),
    ];
    let mut empty = piece(2);
    empty.values = vec![Property::Null; 7];
    let mut other = piece(3);
    other.values = vec![
        Property::Boolean(false),
        Property::Integer(-1),
        Property::Integer(7),
        text(""),
        text("2024-02-29"),
        text("2024-05-01T10:20:30"),
        text("plain"),
    ];
    let (tally, refused) = load(&place, &plan, vec![full, empty, other]).await;
    assert_eq!((tally.inserted, refused.len()), (3, 0), "{refused:?}");
    let sql = if place.is_file() {
        "SELECT yes, whole, part, text, day, moment, \"any\" FROM zones ORDER BY fid"
    } else {
        "SELECT yes::int, whole, part, text, day, to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'),
         \"any\"#>>'{}' FROM zones ORDER BY fid"
    };
    let rows = place.ask(sql);
    assert_eq!(
        rows[0].replace(' ', ""),
        "1|9223372036854775807|0.1|naïve☃|1899-12-31|2024-05-01T08:20:30.500Z|[1,{\"a\":null}]"
    );
    assert_eq!(rows[1], "||||||");
    assert_eq!(rows[2], "0|-1|7||2024-02-29|2024-05-01T10:20:30.000Z|plain");
    let types = match &place {
        Place::File(_) => "SELECT lower(group_concat(type)) FROM pragma_table_info('zones') WHERE cid > 3",
        Place::Schema { .. } => {
            "SELECT string_agg(format_type(atttypid, -1), ',' ORDER BY attnum) FROM pg_attribute
             WHERE attrelid = 'zones'::regclass AND attnum > 4"
        }
    };
    let wanted = match &place {
        Place::File(_) => "boolean,integer,real,text,date,datetime,text",
        Place::Schema { .. } => "boolean,bigint,double precision,text,date,timestamp with time zone,json",
    };
    assert_eq!(place.ask(types), [wanted]);
}

async fn what_has_no_column_is_kept(place: Place) {
    let mut plan = plan("a", Mode::Append);
    plan.fields = vec![field("day", FieldKind::Date), field("fid", FieldKind::Integer), field("name", FieldKind::Text)];
    let values = |day: &str, fid: Property| vec![Property::Text(day.to_owned()), fid, Property::Text("n".to_owned())];
    let (mut plain, mut odd) = (piece(1), piece(2));
    plain.values = values("2024-01-01", Property::Null);
    odd.values = values("last spring", Property::Integer(7));
    let (tally, refused) = load(&place, &plan, vec![plain, odd, piece(3)]).await;
    assert_eq!((tally.inserted, refused.len()), (3, 0));
    let rows = place.ask("SELECT day, name, geonce_other FROM zones ORDER BY fid");
    assert_eq!(rows[0], "2024-01-01|n|");
    assert_eq!(rows[1], "|n|{\"day\":\"last spring\",\"fid\":7}");
}

async fn many_fields_are_many_columns(place: Place) {
    let mut plan = plan("a", Mode::Append);
    plan.fields = (0..300).map(|number| field(&format!("column {number}"), FieldKind::Real)).collect();
    let mut wide = piece(1);
    wide.values = (0..300).map(|number| Property::Real(f64::from(number) / 8.0)).collect();
    let (tally, _) = load(&place, &plan, vec![wide]).await;
    assert_eq!(tally.inserted, 1);
    assert_eq!(place.ask("SELECT \"column 0\", \"column 199\" FROM zones"), ["0|24.875"]);
    if place.is_file() {
        assert_eq!(place.ask("SELECT \"column 299\" FROM zones"), ["37.375"]);
    } else {
        assert_eq!(place.ask("SELECT geonce_other->>'column 299' FROM zones"), ["37.375"]);
    }
}

async fn a_layer_keeps_its_coordinate_system(place: Place) {
    let mut first = plan("a", Mode::Append);
    first.crs = Some(2056);
    load(&place, &first, pieces(1..3)).await;
    let target = place.open(&plan("b", Mode::Append)).await.unwrap();
    assert_eq!(target.crs(), 2056);
    drop(target);
    let mut other = plan("c", Mode::Append);
    other.crs = Some(4326);
    let error = place.open(&other).await.err().unwrap();
    assert_eq!(error.kind(), Kind::Incompatible);
    assert!(error.hint_text().unwrap().contains("2056"), "{error}");
    let mut unknown = plan("d", Mode::Append);
    (unknown.layer, unknown.crs) = ("elsewhere".to_owned(), Some(999_999));
    assert_eq!(place.open(&unknown).await.err().unwrap().kind(), Kind::Incompatible);
    for name in ["", "geonce_zones", "a\nb"] {
        let mut bad = plan("e", Mode::Append);
        bad.layer = name.to_owned();
        assert_eq!(place.open(&bad).await.err().unwrap().kind(), Kind::Invalid, "{name:?}");
    }
}

async fn every_kind_of_geometry_and_none_are_taken(place: Place) {
    let texts = [
        "POINT Z(1 2 3)",
        "LINESTRING(1 2,3 4)",
        "POLYGON((0 0,4 0,4 4,0 0),(1 1,2 2,2 1,1 1))",
        "MULTIPOINT(1 2,3 4)",
        "MULTIPOLYGON Z(((0 0 1,4 0 1,4 4 1,0 0 1)))",
        "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(5 6,7 8))",
    ];
    let mut features: Vec<_> = (1..).zip(texts).map(|(number, text)| shaped(number, text)).collect();
    let mut null = piece(7);
    (null.geometry, null.key) = (None, Fingerprint::from_digest(digest("null"), false));
    features.push(null);
    let (tally, refused) = load(&place, &plan("a", Mode::Append), features).await;
    assert_eq!((tally.inserted, refused.len()), (7, 0), "{refused:?}");
    assert_eq!(place.ask("SELECT count(*) FROM zones WHERE geom IS NULL"), ["1"]);
    if !place.is_file() {
        let found = place.ask("SELECT ST_AsText(geom) FROM zones WHERE geom IS NOT NULL ORDER BY fid");
        let plain = |text: &str| text.replace(['(', ')', ' '], "");
        let (found, wanted): (Vec<_>, Vec<_>) =
            (found.iter().map(|text| plain(text)).collect(), texts.iter().map(|text| plain(text)).collect());
        assert_eq!(found, wanted);
    }
}
