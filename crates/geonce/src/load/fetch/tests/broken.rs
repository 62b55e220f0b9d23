//! Answers that break, lie or do not end.

use super::{Reply, Site, TAG, Then, chunked, content, options, reply, run, with_parts};
use crate::load::fetch::FetchOptions;
use std::io::Write as _;
use std::time::Duration;

#[tokio::test]
async fn a_file_is_fetched_with_what_is_said_of_it() {
    let body = content(300_000);
    let shared = body.clone();
    let site = Site::new(move |_, _| {
        let headers =
            [TAG, ("content-type", "application/geo+json"), ("last-modified", "Sat, 14 Nov 2026 00:00:00 GMT")];
        reply("200 OK", &headers, &shared)
    })
    .await;
    let done = run(&site.url("/a/parcels?b=2&a=1#part"), &options()).await;
    assert_eq!(done.bytes(), body);
    let fetched = done.fetched();
    assert_eq!(fetched.name, "parcels.geojson");
    assert_eq!(fetched.etag.as_deref(), Some("\"one\""));
    assert_eq!(fetched.last_modified.as_deref(), Some("Sat, 14 Nov 2026 00:00:00 GMT"));
    assert_eq!(fetched.content_type.as_deref(), Some("application/geo+json"));
    assert_eq!(fetched.url_for_key, site.url("/a/parcels?a=1&b=2"));
    let seen = site.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].target, "/a/parcels?b=2&a=1");
    assert_eq!(seen[0].header("accept-encoding"), Some("identity"));
    assert_eq!(seen[0].header("host"), Some(format!("data.example:{}", site.address.port()).as_str()));
}

#[tokio::test]
async fn an_answer_cut_anywhere_is_completed_from_there() {
    let body = content(120);
    for in_chunks in [false, true] {
        let whole = if in_chunks { chunked("200 OK", &[TAG], &body) } else { reply("200 OK", &[TAG], &body) };
        let head = whole.bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        for cut in (0..whole.bytes.len()).step_by(3) {
            let (whole, body) = (whole.clone(), body.clone());
            let shared = body.clone();
            let site = Site::new(move |at, seen| match at {
                0 => whole.clone().cut(cut),
                _ => with_parts(seen, &shared, TAG),
            })
            .await;
            let done = run(&site.url("/a.csv"), &options()).await;
            assert_eq!(done.bytes(), body, "cut at {cut}");
            let seen = site.seen();
            // Where only the end itself was missing, there is no rest that could be asked for.
            let nothing_left = seen[1].header("range") == Some("bytes=120-");
            assert_eq!(seen.len(), if nothing_left { 3 } else { 2 }, "cut at {cut}");
            let range = seen[1].header("range");
            if in_chunks {
                assert!(cut >= head + 4 || range.is_none());
            } else {
                let expected = cut.checked_sub(head).filter(|&bytes| bytes > 0).map(|bytes| format!("bytes={bytes}-"));
                assert_eq!(range, expected.as_deref(), "cut at {cut}");
            }
            assert_eq!(seen[1].header("if-range"), range.map(|_| "\"one\""));
        }
    }
}

#[tokio::test]
async fn a_download_that_breaks_again_and_again_comes_to_its_end() {
    let body = content(200_000);
    let shared = body.clone();
    let site = Site::new(move |_, seen| {
        let whole = with_parts(seen, &shared, TAG);
        let head = whole.bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        whole.cut(head + 3_700)
    })
    .await;
    let done = run(&site.url("/a.csv"), &options()).await;
    assert_eq!(done.bytes(), body);
    assert_eq!(site.seen().len(), 200_000usize.div_ceil(3_700));
}

/// The first answer breaks after 50 bytes; what follows is `second`. What is fetched, and the requests.
async fn after_a_break(
    first: &[(&str, &str)],
    second: impl Fn(&super::Seen) -> Reply + Send + Sync + 'static,
) -> (super::Run, Site) {
    let whole = reply("200 OK", first, &content(120));
    let head = whole.bytes.len() - 120;
    let site = Site::new(move |at, seen| if at == 0 { whole.clone().cut(head + 50) } else { second(seen) }).await;
    (run(&site.url("/a.csv"), &options()).await, site)
}

#[tokio::test]
async fn bytes_of_two_versions_are_never_put_together() {
    let new = b"another content altogether".to_vec();
    let other = ("etag", "\"two\"");
    // A server that heeds if-range, one that knows no parts, and one whose part is of the new version.
    let shared = new.clone();
    let (done, site) = after_a_break(&[TAG], move |seen| with_parts(seen, &shared, other)).await;
    assert_eq!(done.bytes(), new);
    assert_eq!(done.fetched().etag.as_deref(), Some("\"two\""));
    assert_eq!(site.seen()[1].header("if-range"), Some("\"one\""));

    let (done, _) = after_a_break(&[TAG], |_| reply("200 OK", &[], &content(120))).await;
    assert_eq!(done.bytes(), content(120));

    let wrong: [(&str, &str, usize); 7] = [
        ("\"two\"", "bytes 50-119/120", 70),
        ("\"one\"", "bytes 0-119/120", 120),
        ("\"one\"", "bytes 51-119/120", 69),
        ("\"one\"", "bytes 50-119/121", 70),
        ("\"one\"", "bytes 50-118/120", 70),
        ("\"one\"", "bytes */120", 70),
        ("\"one\"", "lines 50-119/120", 70),
    ];
    for (tag, range, bytes) in wrong {
        let (done, site) = after_a_break(&[TAG], move |seen| match seen.header("range") {
            Some(_) => reply("206 Partial Content", &[("etag", tag), ("content-range", range)], &vec![b'x'; bytes]),
            None => reply("200 OK", &[TAG], &content(120)),
        })
        .await;
        assert_eq!(done.bytes(), content(120), "{tag} {range}");
        assert_eq!(site.seen().len(), 3, "{tag} {range}");
    }
}

#[tokio::test]
async fn only_what_proves_the_same_bytes_lets_a_download_go_on() {
    let date = ("date", "Sun, 15 Nov 2026 00:00:00 GMT");
    let old = ("last-modified", "Sat, 14 Nov 2026 23:59:00 GMT");
    let fresh = ("last-modified", "Sat, 14 Nov 2026 23:59:01 GMT");
    let weak = ("etag", "W/\"one\"");
    for (headers, goes_on) in [
        (vec![], false),
        (vec![weak, date], false),
        (vec![weak, date, old], false),
        (vec![old], false),
        (vec![date, fresh], false),
        (vec![date, old], true),
        (vec![TAG, date, fresh], true),
    ] {
        let validator = if headers.contains(&TAG) { TAG } else { old };
        let (done, site) = after_a_break(&headers, move |seen| with_parts(seen, &content(120), validator)).await;
        assert_eq!(done.bytes(), content(120));
        assert_eq!(site.seen()[1].header("range").is_some(), goes_on, "{headers:?}");
        assert_eq!(site.seen().len(), 2);
    }
}

#[tokio::test]
async fn a_part_that_is_less_than_the_rest_is_followed_by_another() {
    let (done, site) = after_a_break(&[TAG], |seen| {
        let from: usize = seen.header("range").unwrap()[6..].trim_end_matches('-').parse().unwrap();
        let to = (from + 30).min(120);
        let range = format!("bytes {from}-{}/120", to - 1);
        reply("206 Partial Content", &[("content-range", &range)], &content(120)[from..to])
    })
    .await;
    assert_eq!(done.bytes(), content(120));
    assert_eq!(site.seen().len(), 4);
}

#[tokio::test]
async fn a_range_that_cannot_be_satisfied_begins_anew() {
    let (done, _) = after_a_break(&[TAG], |seen| match seen.header("range") {
        Some(_) => reply("416 Range Not Satisfiable", &[("content-range", "bytes */20")], b""),
        None => reply("200 OK", &[], b"short now"),
    })
    .await;
    assert_eq!(done.bytes(), b"short now");
}

#[tokio::test]
async fn an_answer_whose_end_cannot_be_told_is_refused() {
    let site = Site::new(|_, _| reply("200 OK", &[("connection", "close")], b"a;b;c").then(Then::Close)).await;
    let error = run(&site.url("/a.csv"), &options()).await.error();
    assert!(error.contains("without a length"), "{error}");
    assert_eq!(site.seen().len(), 1);
}

#[tokio::test]
async fn a_silent_or_dripping_server_is_left() {
    let short =
        FetchOptions { silence_max: Duration::from_millis(60), answer_max: Duration::from_millis(60), ..options() };
    let pause = Duration::from_millis(5);
    for (then, bytes) in [(Then::Hang, 90), (Then::Drip(1, pause), 90), (Then::Hang, 10), (Then::Drip(1, pause), 34)] {
        let site = Site::new(move |_, _| {
            let head = reply("200 OK", &[("content-length", "100000")], b"abc");
            Reply { bytes: head.bytes[..bytes.min(head.bytes.len())].to_vec(), then }
        })
        .await;
        let error = run(&site.url("/a.csv"), &short).await.error();
        assert!(error.contains("within 0") && error.contains("the last of 6 attempts"), "{error}");
        // On a busy machine an attempt may be over before the server has read what was asked.
        assert!(site.seen().len() <= 6, "{error}");
    }
}

#[tokio::test]
async fn a_body_without_an_end_is_cut_at_the_limit() {
    let limited = FetchOptions { bytes_max: 100_000, ..options() };
    let site = Site::new(|_, _| {
        let chunk = [b"1000\r\n".as_slice(), &[b'x'; 4096], b"\r\n"].concat().repeat(100);
        reply("200 OK", &[("transfer-encoding", "chunked")], &chunk).then(Then::Hang)
    })
    .await;
    let error = run(&site.url("/a.csv"), &limited).await.error();
    assert!(error.contains("more than 100000 bytes"), "{error}");
    let site = Site::new(|_, _| reply("200 OK", &[("content-length", "100001")], b"").then(Then::Hang)).await;
    let error = run(&site.url("/a.csv"), &limited).await.error();
    assert!(error.contains("more than 100000 bytes"), "{error}");
    assert_eq!(site.seen().len(), 1);
}

#[tokio::test]
async fn heads_that_are_too_long_or_no_http_are_refused() {
    let long = "x".repeat(1 << 20);
    let answers = [
        reply("200 OK", &[("x-long", &long)], b"a"),
        Reply { bytes: b"SSH-2.0-server\r\n".to_vec(), then: Then::Close },
    ];
    for answer in answers {
        let site = Site::new(move |_, _| answer.clone()).await;
        let error = run(&site.url("/a.csv"), &options()).await.error();
        assert!(error.contains("no answer"), "{error}");
    }
    let twice = [("content-length", "5"), ("content-length", "7")];
    let site = Site::new(move |_, _| reply("200 OK", &twice, b"1234567")).await;
    assert!(run(&site.url("/a.csv"), &options()).await.error().contains("no answer"));
}

fn packed(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn content_that_comes_packed_is_unpacked_within_limits() {
    let gzip = ("content-encoding", "gzip");
    let send = |body: Vec<u8>, encoding| Site::new(move |_, _| reply("200 OK", &[encoding], &body));
    let site = send(packed(&content(500_000)), gzip).await;
    let done = run(&site.url("/a.csv.gz"), &options()).await;
    assert_eq!(done.bytes(), content(500_000));
    assert_eq!(done.fetched().name, "a.csv");

    let bomb = packed(&vec![b' '; 40 << 20]);
    let site = send(bomb.clone(), gzip).await;
    let error = run(&site.url("/a.csv"), &options()).await.error();
    assert!(error.contains("unpacks to more than"), "{error}");
    let site = send(packed(&content(500_000)), gzip).await;
    let error = run(&site.url("/a.csv"), &FetchOptions { bytes_max: 400_000, ..options() }).await.error();
    assert!(error.contains("unpacks to more than 400000"), "{error}");

    let whole = packed(&content(5_000));
    for cut in (0..whole.len()).step_by(97) {
        let site = send(whole[..cut].to_vec(), gzip).await;
        let done = run(&site.url("/a.csv"), &options()).await;
        assert!(done.error().contains("unpacking"), "{cut}");
    }
    let site = send(whole, ("content-encoding", "br")).await;
    assert!(run(&site.url("/a.csv"), &options()).await.error().contains("packed in a way"));
}

#[tokio::test]
async fn the_first_of_several_pages_is_not_taken_for_all() {
    let page = br#"{"type":"FeatureCollection","features":[],"links":[{"rel":"next","href":"?offset=1"}]}"#;
    let json = ("content-type", "application/geo+json; charset=utf-8");
    let site = Site::new(move |_, _| reply("200 OK", &[json], page)).await;
    let error = run(&site.url("/items"), &options()).await.error();
    assert!(error.contains("only the first page") && error.contains("--pages"), "{error}");
    let accepted = FetchOptions { first_page_only: true, ..options() };
    assert_eq!(run(&site.url("/items"), &accepted).await.bytes(), page);
    let site = Site::new(move |_, _| reply("200 OK", &[("link", "<?b=1>; rel=\"next\"")], b"a")).await;
    assert!(run(&site.url("/a.csv"), &options()).await.error().contains("only the first page"));
}
