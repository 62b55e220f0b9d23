//! Pages of APIs that behave, and pages that come broken.

use super::{Reply, Run, Seen, Site, Then, options, reply, run};
use crate::load::fetch::{FetchOptions, Paging};
use std::collections::HashSet;

pub(super) const JSON: (&str, &str) = ("content-type", "application/geo+json");

pub(super) fn feature(id: usize) -> String {
    format!(
        r#"{{"type":"Feature","id":{id},"geometry":{{"type":"Point","coordinates":[{id}.5,1]}},"properties":{{"n":{id}}}}}"#
    )
}

/// A page of these features with these other members.
pub(super) fn page(features: impl IntoIterator<Item = String>, members: &str) -> String {
    let features: Vec<String> = features.into_iter().collect();
    format!("{{\"type\":\"FeatureCollection\",\n \"features\": [\n{}\n]{members}}}", features.join(",\n"))
}

pub(super) fn ok(body: &str) -> Reply {
    reply("200 OK", &[JSON], body.as_bytes())
}

pub(super) fn paging(paging: Paging) -> FetchOptions {
    FetchOptions { paging: Some(paging), ..options() }
}

/// The features of a run, one on each line.
#[track_caller]
pub(super) fn lines(done: &Run) -> Vec<String> {
    let text = String::from_utf8(done.bytes()).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

/// A collection in pages of `size` by offset, as OGC API Features has it.
pub(super) fn ogc(seen: &Seen, ids: &[usize], size: usize) -> Reply {
    let offset: usize = seen.parameter("offset").map_or(0, |text| text.parse().unwrap());
    let ids_here = &ids[offset.min(ids.len())..(offset + size).min(ids.len())];
    let next = offset + size;
    let link = format!(
        r#"{{"rel":"self","href":"/"}},{{"rel":"next","type":"text/html","href":"/no"}},{{"rel":"next","type":"application/geo+json","href":"items?limit={size}&offset={next}"}}"#
    );
    let links = if next < ids.len() { link } else { String::new() };
    let (matched, returned) = (ids.len(), ids_here.len());
    let members =
        format!(r#","links":[{links}],"numberMatched":{matched},"numberReturned":{returned},"timeStamp":"{offset}""#);
    ok(&page(ids_here.iter().map(|&id| feature(id)), &members))
}

#[tokio::test]
async fn pages_with_links_become_one_file_of_lines() {
    let ids: Vec<usize> = (0..23).collect();
    let site = Site::new(move |_, seen| ogc(seen, &ids, 5)).await;
    let done = run(&site.url("/collections/zones/items"), &paging(Paging::Auto)).await;
    assert_eq!(lines(&done), (0..23).map(feature).collect::<Vec<_>>());
    let fetched = done.fetched();
    let pages = fetched.pages.unwrap();
    assert_eq!((pages.count, pages.features, fetched.name.as_str()), (5, 23, "zones.geojsonl"));
    let seen = site.seen();
    assert_eq!(seen.len(), 6, "the first page is looked at again at the end");
    assert!(seen.iter().all(|one| one.connection == 1 && one.header("cache-control") == Some("no-cache")));
    assert!(seen[0].header("accept").unwrap().starts_with("application/geo+json"));
}

#[tokio::test]
async fn the_digest_of_pages_knows_every_address() {
    let mut digests = HashSet::new();
    for size in [4, 5, 5] {
        let ids: Vec<usize> = (0..9).collect();
        let site = Site::new(move |_, seen| ogc(seen, &ids, size)).await;
        // The port differs from server to server; the name for keys must not.
        let done = run(&site.url("/collections/zones/items?access_token=abc"), &paging(Paging::Links)).await;
        digests.insert((size, done.fetched().pages.unwrap().sha256 == [0; 32]));
        assert_eq!(lines(&done).len(), 9);
        let again = run(&site.url("/collections/zones/items?access_token=other"), &paging(Paging::Links)).await;
        assert_eq!(again.fetched().pages, done.fetched().pages, "a token is no part of it");
        let other = run(&site.url("/collections/zones/items?bbox=1,2,3,4"), &paging(Paging::Links)).await;
        assert_ne!(other.fetched().pages, done.fetched().pages);
    }
    assert_eq!(digests, HashSet::from([(4, false), (5, false)]));
}

#[tokio::test]
async fn a_first_page_that_has_not_changed_need_not_be_sent_again() {
    let site = Site::new(|_, seen| match seen.header("if-none-match") {
        Some("W/\"1\"") => reply("304 Not Modified", &[("etag", "W/\"1\"")], b""),
        Some(other) => panic!("{other}"),
        None if seen.path() == "/a" => {
            reply("200 OK", &[("etag", "W/\"1\""), ("link", "</b>; rel=next")], page([feature(1)], "").as_bytes())
        }
        None => ok(&page([feature(2)], "")),
    })
    .await;
    let done = run(&site.url("/a"), &paging(Paging::Links)).await;
    assert_eq!(lines(&done), [feature(1), feature(2)]);
    assert_eq!(site.seen().len(), 3);
}

#[tokio::test]
async fn pages_with_a_member_next_or_without_a_length_are_read() {
    let site = Site::new(|_, seen| {
        let body = match seen.path() {
            "/a" => page([feature(1)], ",\"count\":2,\"next\":\"/b\",\"previous\":null"),
            _ => page([feature(2)], ",\"next\":null"),
        };
        reply("200 OK", &[("connection", "close")], body.as_bytes()).then(Then::Close)
    })
    .await;
    assert_eq!(lines(&run(&site.url("/a"), &paging(Paging::Auto)).await), [feature(1), feature(2)]);
}

#[tokio::test]
async fn a_token_is_sent_back_until_there_is_none() {
    for (first, last) in [("\"a b&c\"", "null"), ("17", "\"\""), ("\"x\"", "false")] {
        let site = Site::new(move |_, seen| match seen.parameter("cursor") {
            Some("start") => ok(&page([feature(1)], &format!(",\"meta\":{{\"next\":{first}}}"))),
            Some(_) => ok(&page([feature(2)], &format!(",\"meta\":{{\"next\":{last}}}"))),
            None => panic!("{}", seen.target),
        })
        .await;
        let by = Paging::Token { pointer: "/meta/next".to_owned(), parameter: "cursor".to_owned() };
        let done = run(&site.url("/api?cursor=start&q=1"), &paging(by)).await;
        assert_eq!(lines(&done), [feature(1), feature(2)]);
        assert_eq!(site.seen()[1].parameter("q"), Some("1"));
        if first == "\"a b&c\"" {
            assert_eq!(site.seen()[1].parameter("cursor"), Some("a+b%26c"));
        }
    }
    for pointer in ["", "meta", "/features/0/id"] {
        let by = Paging::Token { pointer: pointer.to_owned(), parameter: "cursor".to_owned() };
        assert!(run("http://data.example/", &paging(by)).await.error().contains("no place for a page's token"));
    }
}

/// A layer as ArcGIS serves it, in pages of 4.
pub(super) fn arcgis(seen: &Seen, ids: &[usize], edited: u64, says_exceeded: bool) -> Reply {
    if !seen.path().ends_with("/query") {
        return ok(&format!(
            r#"{{"objectIdField":"FID","maxRecordCount":4,"editingInfo":{{"lastEditDate":{edited}}},"fields":[]}}"#
        ));
    }
    assert_eq!(seen.parameter("token"), Some("abc"));
    if seen.parameter("returnCountOnly") == Some("true") {
        return ok(&format!("{{\"count\":{}}}", ids.len()));
    }
    let parameters =
        ["f", "where", "outFields", "orderByFields", "resultRecordCount"].map(|name| seen.parameter(name).unwrap());
    assert_eq!(parameters, ["geojson", "a%3D1", "*", "FID", "4"]);
    let offset: usize = seen.parameter("resultOffset").unwrap().parse().unwrap();
    let here = &ids[offset.min(ids.len())..(offset + 4).min(ids.len())];
    let exceeded = offset + 4 < ids.len() && says_exceeded;
    let members = if exceeded { r#","properties":{"exceededTransferLimit":true}"# } else { "" };
    ok(&page(here.iter().map(|&id| feature(id)), members))
}

#[tokio::test]
async fn an_arcgis_layer_is_read_by_counting() {
    for (count, says_exceeded) in [(0, true), (3, true), (4, false), (8, false), (11, true), (11, false)] {
        let ids: Vec<usize> = (0..count).collect();
        let site = Site::new(move |_, seen| arcgis(seen, &ids, 5, says_exceeded)).await;
        for path in ["/rest/services/roads/FeatureServer/0/query", "/rest/services/roads/FeatureServer/0"] {
            let url = site.url(&format!("{path}?where=a%3D1&f=html&token=abc&outFields="));
            let done = run(&url, &paging(Paging::Auto)).await;
            assert_eq!(lines(&done), (0..count).map(feature).collect::<Vec<_>>());
            assert_eq!(done.fetched().name, "roads.geojsonl");
            assert!(!done.fetched().url_shown.contains("abc"));
        }
    }
    let error = run("http://data.example/collections/x/items", &paging(Paging::ArcGis)).await.error();
    assert!(error.contains("not that of an ArcGIS layer"), "{error}");
}

#[tokio::test]
async fn an_error_in_an_answer_that_claims_success_is_an_error() {
    for (code, tries) in [(498, 1), (400, 1), (503, 6)] {
        let site = Site::new(move |_, _| {
            ok(&format!(r#"{{"error":{{"code":{code},"message":"Invalid abcd","details":["no abcd here"]}}}}"#))
        })
        .await;
        let error = run(&site.url("/items?token=abcd"), &paging(Paging::Links)).await.error();
        assert!(error.contains(&format!("error {code}: Invalid … no … here")), "{error}");
        assert_eq!(site.seen().len(), tries);
    }
    let site = Site::new(|_, _| reply("200 OK", &[("content-type", "text/html")], b"<html>")).await;
    let error = run(&site.url("/items"), &paging(Paging::Links)).await.error();
    assert!(error.contains("a web page") && error.contains("f=json"), "{error}");
}

#[tokio::test]
async fn a_page_cut_anywhere_is_fetched_again_and_nothing_of_it_is_kept() {
    let ids: Vec<usize> = (0..6).collect();
    let request = Seen { target: "/items?offset=2".to_owned(), headers: Vec::new(), connection: 0 };
    let whole = ogc(&request, &ids, 2).bytes;
    let head = whole.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    for cut in (0..whole.len()).step_by(13) {
        for lies in [false, true] {
            let (ids, body) = (ids.clone(), whole[head..].to_vec());
            // The connection breaks, or the server itself cuts its document and gives the length of what is left.
            let broken = if lies {
                reply("200 OK", &[JSON], &body[..cut.min(body.len() - 1)])
            } else {
                Reply { bytes: whole.clone(), then: Then::Close }.cut(cut)
            };
            let site = Site::new(move |at, seen| if at == 1 { broken.clone() } else { ogc(seen, &ids, 2) }).await;
            let done = run(&site.url("/items"), &paging(Paging::Links)).await;
            assert_eq!(lines(&done), (0..6).map(feature).collect::<Vec<_>>(), "{cut} {lies}");
            assert_eq!(site.seen().len(), 5, "{cut} {lies}");
        }
    }
}

#[tokio::test]
async fn a_long_page_that_breaks_at_its_end_leaves_nothing_of_its_features() {
    let long = |id: usize| feature(id).replace("\"n\"", &format!("\"{}\"", "n".repeat(150_000)));
    let site = Site::new(move |at, seen| match (seen.path(), at) {
        ("/a", _) => ok(&page([long(1)], ",\"next\":\"/b\"")),
        (_, 1) => ok(&page((2..9).map(long), ",\"numberReturned\":8")),
        _ => ok(&page((2..8).map(long), ",\"numberReturned\":6")),
    })
    .await;
    let done = run(&site.url("/a"), &paging(Paging::Links)).await;
    assert_eq!(lines(&done), (1..8).map(long).collect::<Vec<_>>());
}

#[tokio::test]
async fn pages_that_stay_broken_or_lack_features_are_refused() {
    for body in [
        page([feature(1)], ",\"numberReturned\":2"),
        page([feature(1)], ",\"features\":[]"),
        "{\"type\":\"FeatureCollection\"}".to_owned(),
        "[]".to_owned(),
        page([feature(1)], "") + "}",
        page(["{\"a\":\"\u{1}\"}".to_owned()], ""),
        page([feature(1)], ",\"meta\":{\"t\":[1]}"),
        String::new(),
    ] {
        let shown = body.clone();
        let site = Site::new(move |_, _| ok(&body)).await;
        let by = Paging::Token { pointer: "/meta/t".to_owned(), parameter: "t".to_owned() };
        let error = run(&site.url("/items"), &paging(by)).await.error();
        assert!(error.contains("cut off or no page of features"), "{shown}: {error}");
        assert_eq!(site.seen().len(), 6);
    }
}

#[tokio::test]
async fn a_server_that_limits_rates_is_read_to_the_end() {
    let ids: Vec<usize> = (0..20).collect();
    let site = Site::new(move |at, seen| match at % 3 {
        1 => reply("429 Too Many Requests", &[("retry-after", "3")], b""),
        2 => reply("503 Service Unavailable", &[], b""),
        _ => ogc(seen, &ids, 2),
    })
    .await;
    let done = run(&site.url("/items"), &paging(Paging::Links)).await;
    assert_eq!(lines(&done).len(), 20);
    assert_eq!(done.waits.iter().filter(|wait| wait.as_secs() == 3).count(), 10);
}

#[tokio::test]
async fn pages_features_and_bytes_have_limits() {
    let endless = |limits: FetchOptions| async move {
        let site = Site::new(|at, _| ok(&page([feature(at)], &format!(",\"next\":\"/{at}\"")))).await;
        run(&site.url("/a"), &limits).await.error()
    };
    let links = paging(Paging::Links);
    let error = endless(FetchOptions { pages_max: 7, ..links.clone() }).await;
    assert!(error.contains("more than 7 pages"), "{error}");
    let error = endless(FetchOptions { features_max: 7, ..links.clone() }).await;
    assert!(error.contains("more than 7 features"), "{error}");
    let error = endless(FetchOptions { bytes_max: 700, ..links.clone() }).await;
    assert!(error.contains("700 bytes"), "{error}");
    let error = endless(FetchOptions { page_bytes_max: 70, ..links }).await;
    assert!(error.contains("more than 70 bytes"), "{error}");
}

#[tokio::test]
async fn headers_do_not_follow_a_next_page_to_another_host() {
    let other = Site::new(|_, _| ok(&page([feature(2)], ""))).await;
    let next = other.url("/b");
    let site = Site::new(move |_, _| ok(&page([feature(1)], &format!(",\"next\":{next:?}")))).await;
    let mut options = paging(Paging::Links);
    options.add_header("X-Key=s3cret").unwrap();
    assert_eq!(lines(&run(&site.url("/a"), &options).await).len(), 2);
    assert_eq!(site.seen()[0].header("x-key"), Some("s3cret"));
    assert_eq!(other.seen()[0].header("x-key"), None);
}
