//! Bodies: what they keep of a payload, and their bytes.

use super::{Random, body, geometry};
use crate::near::{Answer, Body, Budget, Cells, Measure, Rule, compare};
use crate::{Code, Input, Policy, Reader};

#[test]
fn a_body_does_not_depend_on_how_a_geometry_is_written() {
    let a = geometry("MultiPolygon", "[[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[1,1],[2,1],[2,2],[1,1]]]]");
    let b = geometry("Polygon", "[[[4,4],[4,0],[0,0],[0,0],[0,4],[4,4]],[[2,2],[2,1],[1,1],[2,2]]]");
    assert_eq!(a, b);
    assert_ne!(geometry("LineString", "[[0,0],[1,1]]"), geometry("LineString", "[[1,1],[0,0]]"));
}

#[test]
fn a_body_is_in_degrees_whatever_the_coordinate_system_was() {
    let mut reader = Reader::new(&Policy::default(), None).unwrap();
    let mut read = |text: &str, crs| {
        let mut input = Input::json(text.as_bytes());
        input.crs = crs;
        Body::new(&reader.read(input).unwrap(), false).unwrap()
    };
    let there = read(r#"{"type":"Point","coordinates":[500000,5538630.703]}"#, Some(32632));
    let [lon, lat, _] = there.shape().positions[0];
    assert_eq!(lon, 9_000_000_000);
    assert!((lat - 50_000_000_000).abs() < 10, "{lat}");
}

#[test]
fn no_geometry_is_no_body() {
    let accept = crate::policy::Accept { types: Some(vec!["null".to_owned()]), ..Default::default() };
    let mut reader = Reader::new(&Policy { accept, ..Policy::default() }, None).unwrap();
    let feature = reader.read(Input::json(br#"{"type":"Feature","geometry":null,"properties":{}}"#)).unwrap();
    assert_eq!(Body::new(&feature, false).unwrap_err().code(), Code::GeojsonNullGeometry);
}

/// Takes every measure and cell of a pair, whatever it is.
fn compared(a: &Body, b: &Body) {
    for measure in Measure::ALL {
        let rule =
            Rule { undirected: true, ..Rule::new(measure, if measure == Measure::Iou { 0.5 } else { 50_000.0 }) };
        let found = compare(a, b, &rule, &mut Budget::new(20_000));
        assert!(!matches!(found, Answer::Near(value) if value.is_nan()));
        let cells = Cells::new(measure, 10.0).unwrap();
        assert!(cells.around(b).contains(&cells.home(b)));
    }
}

fn examples() -> Vec<Body> {
    vec![
        geometry("Point", "[13.4,-52.5]"),
        geometry("Point", "[180,90,-1.25]"),
        geometry("MultiPoint", "[[1,2],[3,4],[1,2]]"),
        geometry("LineString", "[[-180,-90],[180,90]]"),
        geometry("MultiLineString", "[[[0,0],[1,1]],[[2,2,],[3,3],[4,4]]]".replace(",]", "]").as_str()),
        geometry("Polygon", "[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[1,1],[2,1],[2,2],[1,1]]]"),
        geometry("MultiPolygon", "[[[[0,0,1],[4,0,2],[4,4,3],[0,0,1]]],[[[9,0,1],[9,4,2],[7,4,3],[9,0,1]]]]"),
        body(
            r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]},
            {"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}]}"#,
        ),
    ]
}

#[test]
fn bytes_give_the_body_back() {
    for body in examples() {
        assert_eq!(Body::from_bytes(&body.to_bytes()).as_ref(), Ok(&body));
    }
    assert!(examples()[0].to_bytes().len() <= 16);
}

#[test]
fn damaged_bytes_are_an_error_and_never_more() {
    let mut random = Random(1);
    for body in examples() {
        let bytes = body.to_bytes();
        for end in 0..bytes.len() {
            assert!(Body::from_bytes(&bytes[..end]).is_err());
        }
        assert!(Body::from_bytes(&[bytes.as_slice(), &[0]].concat()).is_err());
        for _ in 0..2_000 {
            let mut damaged = bytes.clone();
            let at = (random.next() * bytes.len() as f64) as usize;
            damaged[at] = (random.next() * 256.0) as u8;
            if let Ok(read) = Body::from_bytes(&damaged) {
                // What was read is a body like any other.
                compared(&body, &read);
                assert_eq!(Body::from_bytes(&read.to_bytes()), Ok(read));
            }
        }
    }
    // Counts that announce more than there is.
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for start in [&[1, 1][..], &[1, 0, 1, 2], &[1, 0, 1, 0], &[1, 0, 1, 5], &[1, 0, 1, 5, 1]] {
        assert!(Body::from_bytes(&[start, &huge].concat()).is_err());
    }
    assert!(Body::from_bytes(&[2, 0, 1, 4, 0, 0]).is_err());
    // A point 200 degrees east, and one so far that 64 bits are not enough.
    assert!(Body::from_bytes(&[1, 0, 1, 4, 0x80, 0xc0, 0xee, 0x8e, 0xd2, 0x0b, 0]).is_err());
    assert!(Body::from_bytes(&[&[1, 0, 1, 4][..], &huge, &[0]].concat()).is_err());
}
