//! Sources that change while their pages are read, and sources that never end.

use super::paged::{JSON, arcgis, feature, lines, ogc, ok, page, paging};
use super::{Seen, Site, reply, run};
use crate::load::fetch::{FetchOptions, Paging};

/// A collection that is `before` for so many requests, and `after` from then on.
async fn changing(before: Vec<usize>, after: Vec<usize>, requests: usize, counts: bool) -> Site {
    Site::new(move |at, seen| {
        let ids = if at < requests { &before } else { &after };
        let whole = ogc(seen, ids, 3);
        if counts {
            return whole;
        }
        let text = String::from_utf8(whole.bytes).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        reply("200 OK", &[JSON], body.replace("numberMatched", "other").as_bytes())
    })
    .await
}

#[tokio::test]
async fn a_source_that_changes_once_is_read_anew_and_gives_no_mixture() {
    let before: Vec<usize> = (10..22).collect();
    let inserted: Vec<usize> = (9..22).collect();
    let deleted: Vec<usize> = (11..22).collect();
    let swapped: Vec<usize> = (10..22).map(|id| if id == 10 { 99 } else { id }).collect();
    for after in [inserted, deleted, swapped] {
        for requests in 1..=4 {
            for counts in [true, false] {
                let site = changing(before.clone(), after.clone(), requests, counts).await;
                let done = run(&site.url("/items"), &paging(Paging::Links)).await;
                let expected: Vec<String> = after.iter().map(|&id| feature(id)).collect();
                assert_eq!(lines(&done), expected, "after {requests} requests, counts: {counts}");
                assert!(site.seen().len() > 5, "it was read twice");
            }
        }
    }
}

#[tokio::test]
async fn a_source_that_always_changes_is_refused() {
    let site = Site::new(|at, seen| {
        let ids: Vec<usize> = (at..at + 9).collect();
        ogc(seen, &ids, 3)
    })
    .await;
    let done = run(&site.url("/items"), &paging(Paging::Links)).await;
    let error = done.error();
    assert!(error.contains("changed while it was read, 5 times"), "{error}");
    assert!(error.contains("nobody edits it"), "{error}");
    assert!(done.result.unwrap_err().is_transient());
}

#[tokio::test]
async fn fewer_features_than_are_counted_are_refused_unless_the_count_is_an_estimate() {
    let site = Site::new(|_, _| ok(&page([feature(1)], ",\"numberMatched\":2"))).await;
    let links = paging(Paging::Links);
    let error = run(&site.url("/items"), &links).await.error();
    assert!(error.contains("1 features of 2"), "{error}");
    assert_eq!(lines(&run(&site.url("/items?offset=1"), &links).await).len(), 1, "it began behind the first");
    let estimate = FetchOptions { count_is_estimate: true, ..links };
    assert_eq!(lines(&run(&site.url("/items"), &estimate).await).len(), 1);
}

#[tokio::test]
async fn pages_that_go_in_a_circle_are_refused() {
    let site = Site::new(|at, seen| {
        let next = if seen.path() == "/b" { "/c" } else { "/b" };
        ok(&page([feature(at)], &format!(",\"next\":{next:?}")))
    })
    .await;
    let error = run(&site.url("/a"), &paging(Paging::Links)).await.error();
    assert!(error.contains("page 3 leads to a page that was read before") && error.contains("circle"), "{error}");
    assert_eq!(site.seen().len(), 3);
    let site = Site::new(|at, _| ok(&page([feature(at)], ",\"token\":\"same\""))).await;
    let by = Paging::Token { pointer: "/token".to_owned(), parameter: "t".to_owned() };
    let error = run(&site.url("/a"), &paging(by)).await.error();
    assert!(error.contains("read before"), "{error}");
    // The next page is the page itself.
    let site = Site::new(|_, _| ok(&page([feature(1)], ",\"next\":\"/a\""))).await;
    assert!(run(&site.url("/a"), &paging(Paging::Links)).await.error().contains("read before"));
}

#[tokio::test]
async fn a_server_that_gives_the_same_page_for_every_offset_is_refused() {
    for with_ids in [true, false] {
        let site = Site::new(move |at, _| {
            let features =
                [1, 2].map(feature).map(|text| if with_ids { text } else { text.replace("\"id\"", "\"no\"") });
            ok(&page(features, &format!(",\"next\":\"/{at}\"")))
        })
        .await;
        let error = run(&site.url("/a"), &paging(Paging::Links)).await.error();
        assert!(error.contains("5 times") && error.contains("page 2 has the"), "{error}");
    }
}

/// Two pages of features without ids, one of which is on both.
fn with_equal(seen: &Seen, last: usize) -> super::Reply {
    let (ids, next) = if seen.path() == "/a" { ([1, 2], ",\"next\":\"/b\"") } else { ([2, last], "") };
    ok(&page(ids.map(feature).map(|text| text.replace("\"id\"", "\"no\"")), next))
}

#[tokio::test]
async fn equal_features_without_ids_are_kept_where_two_readings_are_the_same() {
    let site = Site::new(|_, seen| with_equal(seen, 3)).await;
    let done = run(&site.url("/a"), &paging(Paging::Links)).await;
    assert_eq!(lines(&done).len(), 4);
    assert_eq!(site.seen().len(), 6);
    let site = Site::new(|at, seen| with_equal(seen, at + 10)).await;
    let error = run(&site.url("/a"), &paging(Paging::Links)).await.error();
    assert!(error.contains("a feature is on two pages"), "{error}");
}

#[tokio::test]
async fn an_edit_of_an_arcgis_layer_begins_the_reading_anew() {
    // Requests of a reading: layer, count, three pages, layer, count.
    let ids: Vec<usize> = (0..10).collect();
    for requests in 1..=5 {
        for says_exceeded in [true, false] {
            let before = ids.clone();
            let site = Site::new(move |at, seen| {
                // Afterwards the features are other ones, as many as before.
                let after: Vec<usize> = (100..110).collect();
                let (ids, edited) = if at < requests { (&before, 1) } else { (&after, 2) };
                arcgis(seen, ids, edited, says_exceeded)
            })
            .await;
            let url = site.url("/services/roads/FeatureServer/0/query?where=a%3D1&token=abc");
            let done = run(&url, &paging(Paging::Auto)).await;
            let expected: Vec<String> = (100..110).map(feature).collect();
            assert_eq!(lines(&done), expected, "{requests}");
        }
    }
}

#[tokio::test]
async fn an_arcgis_layer_that_hides_its_fields_needs_an_order() {
    let answer = |seen: &Seen| match seen.path().ends_with("/query") {
        false => reply("403 Forbidden", &[], b""),
        true if seen.parameter("returnCountOnly").is_some() => ok("{\"count\":1}"),
        true => ok(&page([feature(1)], "")),
    };
    let site = Site::new(move |_, seen| answer(seen)).await;
    let path = "/services/roads/MapServer/3/query";
    let error = run(&site.url(path), &paging(Paging::Auto)).await.error();
    assert!(error.contains("object id") && error.contains("orderByFields"), "{error}");
    let url = site.url(&format!("{path}?orderByFields=OBJECTID&resultRecordCount=10"));
    assert_eq!(lines(&run(&url, &paging(Paging::Auto)).await), [feature(1)]);
}

#[tokio::test]
async fn pages_in_different_coordinate_systems_are_refused() {
    let site = Site::new(|at, _| {
        let crs = format!("<http://www.opengis.net/def/crs/EPSG/0/{}>", if at == 1 { 25_833 } else { 25_832 });
        let next = if at == 0 { ",\"next\":\"/b\"" } else { "" };
        reply("200 OK", &[("content-crs", &crs)], page([feature(at)], next).as_bytes())
    })
    .await;
    let error = run(&site.url("/a"), &paging(Paging::Links)).await.error();
    assert!(error.contains("another coordinate system"), "{error}");
    let done = run(&site.url("/b"), &paging(Paging::Links)).await;
    assert_eq!(done.fetched().content_crs.as_deref(), Some("http://www.opengis.net/def/crs/EPSG/0/25832"));
}
