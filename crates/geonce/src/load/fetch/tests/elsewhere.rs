//! Redirects, TLS, and who gets to see what the user gave.

use super::{Reply, Seen, Site, TAG, content, options, reply, run, run_with, serve};
use crate::load::fetch::FetchOptions;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

fn to(status: &str, location: &str) -> Reply {
    reply(status, &[("location", location)], b"gone there")
}

fn with_secrets() -> FetchOptions {
    let mut options = options();
    options.add_header("X-Key: s3cret").unwrap();
    options
}

#[tokio::test]
async fn redirects_are_followed_and_name_the_file() {
    let site = Site::new(|_, seen| match seen.target.as_str() {
        "/start" => to("301 Moved Permanently", "next?x=1"),
        "/next?x=1" => to("302 Found", "/deep/er"),
        "/deep/er" => to("303 See Other", "../last"),
        "/last" => to("307 Temporary Redirect", "?y=2"),
        "/last?y=2" => to("308 Permanent Redirect", "/files/parcels.csv"),
        "/files/parcels.csv" => reply("200 OK", &[TAG], &content(10)),
        other => panic!("{other}"),
    })
    .await;
    let done = run(&site.url("/start"), &with_secrets()).await;
    assert_eq!(done.bytes(), content(10));
    assert_eq!(done.fetched().name, "parcels.csv");
    assert_eq!(done.fetched().url_for_key, site.url("/start"), "keys know what the user asked for");
    assert_eq!(site.seen().len(), 6);
    assert!(site.seen().iter().all(|seen| seen.header("x-key") == Some("s3cret")));
}

#[tokio::test]
async fn circles_and_endless_chains_of_redirects_end() {
    let site = Site::new(|at, _| to("302 Found", &format!("/{at}"))).await;
    let error = run(&site.url("/a.csv"), &options()).await.error();
    assert!(error.contains("more than 10 redirects"), "{error}");
    assert_eq!(site.seen().len(), 11);
    for location in ["ftp://data.example/a", "file:///etc/passwd", "http://", "http://["] {
        let site = Site::new(move |_, _| to("302 Found", location)).await;
        let error = run(&site.url("/a.csv"), &options()).await.error();
        assert!(error.contains("redirects to no address"), "{error}");
    }
}

#[tokio::test]
async fn another_host_sees_no_secrets_even_on_the_way_back() {
    let home: Arc<Mutex<Option<u16>>> = Arc::default();
    let shared = Arc::clone(&home);
    let other = Site::new(move |_, _| {
        let port = shared.lock().unwrap().unwrap();
        to("302 Found", &format!("http://data.example:{port}/back"))
    })
    .await;
    let port = other.address.port();
    let site = Site::new(move |_, seen| match seen.path() {
        "/start" => to("302 Found", &format!("http://user:pass@data.example:{port}/a")),
        _ => reply("200 OK", &[TAG], &content(10)),
    })
    .await;
    *home.lock().unwrap() = Some(site.address.port());
    let url = site.url("/start").replace("http://", "http://me:mine%21@");
    let done = run(&url, &with_secrets()).await;
    assert_eq!(done.bytes(), content(10));
    let secrets = |seen: &Seen| (seen.header("x-key").is_some(), seen.header("authorization").map(str::to_owned));
    assert_eq!(secrets(&site.seen()[0]), (true, Some("Basic bWU6bWluZSE=".to_owned())));
    assert_eq!(secrets(&other.seen()[0]), (false, None), "another port is another host");
    assert_eq!(secrets(&site.seen()[1]), (false, None));
    assert!(!done.fetched().url_for_key.contains("mine") && !done.fetched().url_shown.contains("mine"));
}

/// A server with TLS for `name`, and roots that trust it.
async fn encrypted(
    name: &str,
    answer: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static,
) -> (SocketAddr, RootCertStore) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve(stream, 1, Arc::default(), answer.clone()));
            }
        }
    });
    (address, roots)
}

#[tokio::test]
async fn certificates_are_verified_and_a_wrong_one_is_told_at_once() {
    let (address, roots) = encrypted("data.example", |_, _| reply("200 OK", &[TAG], &content(10))).await;
    let url = |name: &str| format!("https://{name}:{}/a.csv", address.port());
    assert_eq!(run_with(&url("data.example"), &options(), Some(roots.clone())).await.bytes(), content(10));
    let wrong = run_with(&url("other.example"), &options(), Some(roots)).await;
    assert!(wrong.error().contains("TLS with other.example"), "{}", wrong.error());
    assert_eq!(wrong.waits.len(), 0);
}

#[tokio::test]
async fn from_encrypted_to_not_is_refused_and_the_other_way_followed() {
    let plain = Site::new(|_, _| reply("200 OK", &[TAG], &content(10))).await;
    let target = plain.url("/a.csv");
    let (address, roots) = encrypted("data.example", move |_, seen| match seen.path() {
        "/down" => to("302 Found", &target),
        _ => reply("200 OK", &[TAG], &content(20)),
    })
    .await;
    let secure = format!("https://data.example:{}", address.port());
    let error = run_with(&format!("{secure}/down"), &options(), Some(roots.clone())).await.error();
    assert!(error.contains("from https to http"), "{error}");
    assert_eq!(plain.seen().len(), 0);
    let up = Site::new(move |_, _| to("302 Found", &format!("{secure}/up.csv"))).await;
    assert_eq!(run_with(&up.url("/a.csv"), &options(), Some(roots)).await.bytes(), content(20));
}

#[tokio::test]
async fn over_tls_a_body_may_end_with_the_connection_only_if_that_is_said() {
    let close = |then| move |_: usize, _: &Seen| reply("200 OK", &[("connection", "close")], b"a;b").then(then);
    let (address, roots) = encrypted("data.example", close(super::Then::Close)).await;
    let url = format!("https://data.example:{}/a.csv", address.port());
    assert_eq!(run_with(&url, &options(), Some(roots)).await.bytes(), b"a;b");
}
