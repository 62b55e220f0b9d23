//! Refusals: which of them pass, and how long is waited.

use super::{Site, TAG, content, options, reply, run};
use crate::error::Kind;
use crate::load::fetch::FetchOptions;
use crate::retry::Retry;
use std::time::Duration;

#[tokio::test]
async fn a_server_is_left_alone_for_as_long_as_it_asks() {
    for (status, after, seconds) in [
        ("429 Too Many Requests", Some("7"), 7),
        ("429 Too Many Requests", Some("Sun, 15 Nov 2026 00:01:30 GMT"), 90),
        ("429 Too Many Requests", Some("Sat, 14 Nov 2026 00:00:00 GMT"), 0),
        ("429 Too Many Requests", Some("soon"), 0),
        ("503 Service Unavailable", Some("120"), 120),
        ("503 Service Unavailable", None, 0),
        ("500 Internal Server Error", None, 0),
        ("502 Bad Gateway", None, 0),
        ("504 Gateway Timeout", None, 0),
        ("408 Request Timeout", None, 0),
    ] {
        let site = Site::new(move |at, _| match (at, after) {
            (0, Some(after)) => reply(status, &[("retry-after", after)], b""),
            (0, None) => reply(status, &[], b""),
            _ => reply("200 OK", &[TAG], &content(10)),
        })
        .await;
        let done = run(&site.url("/a.csv"), &options()).await;
        assert_eq!(done.bytes(), content(10), "{status}");
        assert_eq!(done.waits, [Duration::from_secs(seconds)], "{status} {after:?}");
    }
}

#[tokio::test]
async fn waits_grow_with_jitter_and_attempts_end() {
    let site = Site::new(|_, _| reply("503 Service Unavailable", &[("retry-after", "2")], b"")).await;
    let retry = Retry { base: Duration::from_secs(1), attempts: 5, ..Retry::default() };
    let done = run(&site.url("/a.csv"), &FetchOptions { retry, ..options() }).await;
    assert!(done.error().contains("503 Service Unavailable (the last of 5 attempts)"), "{}", done.error());
    assert_eq!((site.seen().len(), done.waits.len()), (5, 4));
    for (attempt, wait) in done.waits.iter().enumerate() {
        let longest = Duration::from_secs(2 + (1 << attempt));
        assert!((Duration::from_secs(2)..=longest).contains(wait), "{:?}", done.waits);
    }
    assert!(done.result.unwrap_err().is_transient());
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_told_and_not_waited_for() {
    for after in ["601", "99999999999999999999999", "Sun, 15 Nov 2026 00:10:01 GMT"] {
        let site = Site::new(move |_, _| reply("429 Too Many Requests", &[("retry-after", after)], b"")).await;
        let done = run(&site.url("/a.csv"), &options()).await;
        assert!(done.error().contains("wants to be asked again in"), "{}", done.error());
        assert_eq!((site.seen().len(), done.waits.len()), (1, 0));
    }
}

#[tokio::test]
async fn refusals_that_do_not_pass_are_told_at_once() {
    for (status, kind) in [
        ("401 Unauthorized", Kind::Permission),
        ("403 Forbidden", Kind::Permission),
        ("404 Not Found", Kind::Missing),
        ("410 Gone", Kind::Missing),
        ("400 Bad Request", Kind::Invalid),
        ("204 No Content", Kind::Invalid),
        ("206 Partial Content", Kind::Invalid),
        ("304 Not Modified", Kind::Invalid),
        ("300 Multiple Choices", Kind::Invalid),
        ("501 Not Implemented", Kind::Invalid),
    ] {
        let site = Site::new(move |_, _| reply(status, &[("content-type", "text/plain")], b"")).await;
        let done = run(&site.url("/a.csv"), &options()).await;
        assert!(done.error().contains(status), "{}", done.error());
        assert_eq!(done.result.unwrap_err().kind(), kind, "{status}");
        assert_eq!(site.seen().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_servers_words_are_shown_without_our_secrets() {
    let site = Site::new(|_, _| {
        let words = b"no such\x1b[31m user for s3cret-token, t0ken-2, dXNlcjpwYXNzd29yZA== \r\n";
        reply("403 Forbidden", &[("content-type", "text/plain")], words)
    })
    .await;
    let mut options = options();
    options.add_header("X-Key=s3cret-token").unwrap();
    let url = site.url("/a.csv?token=t0ken-2").replace("http://", "http://user:password@");
    let error = run(&url, &options).await.error();
    assert!(error.contains("no such [31m user for …, …, …"), "{error}");
    for secret in ["s3cret", "t0ken", "password", "dXNl"] {
        assert!(!error.contains(secret), "{error}");
    }
    let debugged = format!("{options:?}");
    assert!(!debugged.contains("s3cret"), "{debugged}");
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_tried_again_and_then_told() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let done = run(&format!("http://data.example:{}/a.csv", closed.port()), &options()).await;
    assert!(done.error().contains("connecting to 127.0.0.1"), "{}", done.error());
    assert_eq!(done.waits.len(), 5);
}

#[tokio::test]
async fn a_fetch_ends_when_its_time_is_over() {
    let site = Site::new(|_, _| reply("200 OK", &[("content-length", "10")], b"a").then(super::Then::Hang)).await;
    let limited = FetchOptions { time_max: Duration::from_millis(50), ..options() };
    let error = run(&site.url("/a.csv"), &limited).await.error();
    assert!(error.contains("took longer"), "{error}");
}
