//! What is in rows: properties that fit their columns or do not, and geometries of every type and system.

use super::{APPLIED, POINT, Schema, all_applied, feature, is_dead};
use crate::event::Class;
use crate::sink::conformance::Maker;
use crate::sink::{Columns, Options, Outgoing};
use geonce_key::{Input, Limits, Policy, Reader, wkt};

#[tokio::test]
async fn properties_become_columns_and_the_rest_is_kept_beside_them() {
    let schema = Schema::new();
    let maker = Maker::new();
    let options = Options { columns: Columns::Auto { max: 7 }, ..Options::default() };
    let sink = schema.sink(&options);
    let first = r#""id":"z-1","properties":{"name":"Süd \"a\"","n":1,"share":0.5,"open":true,"tags":[1, {"a":null}],"none":null,"Name":"x","fid":7,"":1,"geonce_key":2,"xmin":3}"#;
    let second = r#""id":8,"properties":{"name":5,"n":2.5,"share":3,"open":"yes","tags":"plain","late":1,"later":18446744073709551616}"#;
    let third = r#""id":9,"properties":{"ID":"own","big":12345678901234567890123,"n":9007199254740993}"#;
    let batch = [first, second, third].map(|members| feature(&maker, POINT, members));
    assert_eq!(sink.write(batch[..1].to_vec()).await.unwrap(), [APPLIED]);
    assert_eq!(
        schema.columns(),
        "id text, name text, n bigint, share double precision, open boolean, tags json, geonce_other json"
    );
    assert!(all_applied(&sink.write(batch[1..].to_vec()).await.unwrap()));
    assert_eq!(
        schema.lines("SELECT id, name, n, share, open, tags, late, geonce_other FROM zones ORDER BY fid"),
        [
            r#"z-1|Süd "a"|1|0.5|t|[1, {"a":null}]||{"Name":"x","fid":7,"":1,"geonce_key":2,"xmin":3}"#,
            r#"||2.5|3||"plain"|1|{"id":8,"name":5,"open":"yes","later":18446744073709551616}"#,
            r#"|||||||{"geonce_id":9,"ID":"own","big":12345678901234567890123,"n":9007199254740993}"#,
        ],
        "a column of whole numbers became one of doubles"
    );
    // The columns are known again after opening, and widen again.
    let sink = schema.sink(&options);
    sink.write(vec![feature(&maker, POINT, r#""properties":{"late":1.5}"#)]).await.unwrap();
    assert_eq!(schema.lines("SELECT late FROM zones WHERE late IS NOT NULL ORDER BY fid"), ["1", "1.5"]);
}

#[tokio::test]
async fn a_column_that_cannot_become_one_of_doubles_stays_what_it_is() {
    let schema = Schema::new();
    let maker = Maker::new();
    let sink = schema.sink(&Options::default());
    let with = |a: &str, b: &str| feature(&maker, POINT, &format!(r#""properties":{{"a":{a},"b":{b}}}"#));
    sink.write(vec![with("9007199254740993", "1")]).await.unwrap();
    schema.sql("CREATE VIEW looks AS SELECT b FROM zones");
    assert_eq!(sink.write(vec![with("0.5", "0.25"), with("2", "3")]).await.unwrap(), [APPLIED, APPLIED]);
    assert_eq!(schema.columns(), "a bigint, b bigint, geonce_other json");
    assert_eq!(
        schema.lines("SELECT a, b, geonce_other FROM zones ORDER BY fid"),
        ["9007199254740993|1|", r#"||{"a":0.5,"b":0.25}"#, "2|3|"]
    );
}

#[tokio::test]
async fn no_property_makes_a_batch_fail() {
    let schema = Schema::new();
    let maker = Maker::new();
    let sink = schema.sink(&Options { columns: Columns::Auto { max: 200 }, ..Options::default() });
    let long = "n".repeat(64);
    let many: Vec<String> = (0..300).map(|n| format!(r#""p{n}":"a value of some thirty characters {n}""#)).collect();
    let properties = [
        r#""text":"a\u0000b""#.to_owned(),
        r#""text":"plain","\u0000":1,"list":["\u0000","\ud83d\ude00"]"#.to_owned(),
        r#""text":{"deep":"\u0000"},"huge":1e25,"huger":123456789012345678901234567890"#.to_owned(),
        format!(r#""{long}":1,"{}":2"#, "ü".repeat(31)),
        r#""Straße":1,"STRASSE":2,"straße":3,"a\"b":4,"a'b":5,"$1":6,"c0":7,"u":8,"select":9"#.to_owned(),
        r#""text":"1e400","number":-0.0,"least":5e-324,"edge":-9223372036854775808"#.to_owned(),
        r#""text":"'); DROP TABLE zones; --","back":"\\","tab":"\t\r\n""#.to_owned(),
        many.join(","),
    ];
    let batch: Vec<Outgoing> = properties
        .iter()
        .map(|properties| feature(&maker, POINT, &format!(r#""properties":{{{properties}}}"#)))
        .collect();
    for _ in 0..2 {
        assert!(all_applied(&sink.write(batch.clone()).await.unwrap()));
    }
    let row = |fid: u32, columns: &str| schema.sql(&format!("SELECT {columns} FROM zones WHERE fid = {fid}"));
    assert_eq!(row(1, "text, geonce_other"), r#"|{"text":"a\u0000b"}"#);
    assert_eq!(row(2, "text, list, geonce_other"), r#"plain|["\u0000","\ud83d\ude00"]|{"\u0000":1}"#);
    assert_eq!(
        row(3, "text, huge, huger"),
        r#"{"deep":"\u0000"}|10000000000000000000000000|123456789012345678901234567890"#
    );
    assert_eq!(row(4, &format!("\"{}\", geonce_other", "ü".repeat(31))), format!(r#"2|{{"{long}":1}}"#));
    assert_eq!(row(5, r#""Straße", "STRASSE", "a""b", "a'b", "$1", c0, u, "select""#), "1|2|4|5|6|7|8|9");
    assert_eq!(row(6, "text, number, least, edge"), "1e400|0|5e-324|-9223372036854775808");
    assert_eq!(row(7, "text, back, tab = E'\\t\\r\\n'"), r"'); DROP TABLE zones; --|\|t");
    let columns = schema.sql("SELECT count(*) FROM pg_attribute WHERE attrelid = 'zones'::regclass AND attnum > 0");
    assert_eq!(columns, "205", "as many as are allowed, beside ours");
    assert_eq!(row(8, "(SELECT count(*) FROM json_object_keys(geonce_other)) + 300 - 300"), {
        let made = row(8, "(SELECT count(*) FROM json_object_keys(to_json(zones.*)) AS k WHERE k LIKE 'p%')");
        (300 - made.parse::<u32>().unwrap()).to_string()
    });
}

const SHAPES: [&str; 14] = [
    "POINT(1 2)",
    "POINT Z (1 2 3)",
    "LINESTRING(1 2,3 4)",
    "LINESTRING Z (1 2 3,4 5 6)",
    "POLYGON((0 0,4 0,4 4,0 0),(1 0.5,2 1,3 1,1 0.5))",
    "POLYGON Z ((0 0 1,4 0 2,4 4 3,0 0 1))",
    "MULTIPOINT(1 2,3 4)",
    "MULTIPOINT Z (1 2 3,4 5 6)",
    "MULTILINESTRING((1 2,3 4),(5 6,7 8,9 10))",
    "MULTILINESTRING Z ((1 2 3,3 4 5))",
    "MULTIPOLYGON(((0 0,4 0,4 4,0 0)),((9 9,10 9,10 10,9 9)))",
    "MULTIPOLYGON Z (((0 0 7,4 0 7,4 4 7,0 0 7)))",
    "GEOMETRYCOLLECTION(POINT(1 2),MULTIPOINT(3 4),LINESTRING(5 6,7 8))",
    "GEOMETRYCOLLECTION Z (POINT Z (1 2 3),POLYGON Z ((0 0 1,4 0 2,4 4 3,0 0 1)))",
];

/// A point event, with another geometry.
fn shaped(maker: &Maker, n: usize, text: &str) -> Outgoing {
    let mut outgoing = maker.point(n);
    outgoing.feature.geometry = Some(wkt::read(text.as_bytes(), &Limits::default()).unwrap().shape);
    outgoing
}

#[tokio::test]
async fn every_geometry_is_read_back_as_it_was_delivered() {
    let schema = Schema::new();
    let maker = Maker::new();
    let sink = schema.sink(&Options::default());
    let batch: Vec<Outgoing> = SHAPES.iter().enumerate().map(|(n, text)| shaped(&maker, n, text)).collect();
    assert!(all_applied(&sink.write(batch).await.unwrap()));
    let read = schema.lines("SELECT ST_AsText(geom) || ST_SRID(geom) FROM zones ORDER BY fid");
    // PostGIS writes what it holds in one way; what it is given as text it would write the same.
    for (text, read) in SHAPES.iter().zip(&read) {
        let expected = schema.sql(&format!("SELECT ST_AsText(ST_GeomFromText('{text}')) || 4326"));
        assert_eq!(*read, expected);
    }
    assert_eq!(read.len(), SHAPES.len());
    let clockwise = feature(
        &maker,
        r#"{"type":"Polygon","coordinates":[[[0,0],[0,1],[1,1],[0,0]]]}"#,
        r#""properties":{"name":"turned"}"#,
    );
    sink.write(vec![clockwise]).await.unwrap();
    assert_eq!(schema.sql("SELECT ST_AsText(geom) FROM zones WHERE name = 'turned'"), "POLYGON((0 0,1 1,0 1,0 0))");
}

#[tokio::test]
async fn single_parts_become_multis_where_the_column_wants_them() {
    for (column, taken) in [("MultiPoint", [0, 6]), ("MultiLineString", [2, 8]), ("MultiPolygon", [4, 10])] {
        let schema =
            Schema::prepared(&format!("CREATE TABLE zones (id serial PRIMARY KEY, geom geometry({column}, 4326))"));
        let maker = Maker::new();
        let batch: Vec<Outgoing> = SHAPES.iter().enumerate().map(|(n, text)| shaped(&maker, n, text)).collect();
        let written = schema.sink(&Options::default()).write(batch).await.unwrap();
        for (n, written) in written.iter().enumerate() {
            if taken.contains(&n) {
                assert_eq!(*written, APPLIED, "{column} {n}");
            } else {
                let code = if taken.contains(&(n - n % 2)) { "geometry_z" } else { "geometry_type" };
                assert!(is_dead(written, Class::Geometry, code), "{column} {n} {written:?}");
            }
        }
        assert_eq!(schema.sql("SELECT count(*) FROM zones"), "2");
    }
}

#[tokio::test]
async fn coordinates_are_brought_into_the_system_of_the_layer() {
    let maker = Maker::new();
    let policy = Policy::default();
    for code in [3857, 32633, 25833, 3035] {
        let schema = Schema::new();
        let sink = schema.sink(&Options { crs: code, ..Options::default() });
        let (mut nowhere, mut ballpark) = (maker.point(1), maker.point(2));
        nowhere.feature.geometry.as_mut().unwrap().positions[0] = [200.0, 91.0, 0.0];
        ballpark.feature.crs = 4269;
        let mut projected = maker.point(3);
        let text = "SRID=32633;POINT(397602 5789904)";
        projected.feature = Reader::new(&policy, None)
            .unwrap()
            .read(Input { form: geonce_key::Form::Wkt, ..Input::json(text.as_bytes()) })
            .unwrap();
        let batch = vec![feature(&maker, POINT, r#""properties":{"name":"here"}"#), nowhere, ballpark, projected];
        let written = sink.write(batch).await.unwrap();
        assert_eq!((&written[0], &written[3]), (&APPLIED, &APPLIED));
        assert!(is_dead(&written[1], Class::Crs, "crs_domain"), "{written:?}");
        assert!(matches!(&written[2], crate::sink::Written::Dead(cause) if cause.class == Class::Crs), "{written:?}");
        // Both are the same place, and PostGIS agrees.
        let near = format!(
            "SELECT bool_and(ST_Distance(geom, ST_Transform(ST_SetSRID(ST_MakePoint(13.5, 52.25), 4326), {code})) < 2 AND ST_SRID(geom) = {code}) FROM zones"
        );
        assert_eq!(schema.sql(&near), "t", "EPSG:{code}");
        let exact = format!(
            "SELECT ST_Distance(geom, ST_Transform(ST_SetSRID(ST_MakePoint(13.5, 52.25), 4326), {code})) < 0.001 FROM zones WHERE name = 'here'"
        );
        assert_eq!(schema.sql(&exact), "t", "EPSG:{code}");
    }
}
