//! Where may be asked, and who sees the token.

use super::{EXTRACT, Options, Rig, Site, counts, dead, fetched, ok, one_add, reply};
use crate::changes::{Token, check};
use crate::event::Class;
use crate::sink::Written;
use geonce_key::policy::Secret;
use serde_json::json;

const TOKEN: &str = "s3cr3t-t0k3n";

fn with_token(options: &mut Options) {
    options.token = Some(Token::Text(Secret::new(TOKEN)));
}

#[tokio::test]
async fn hosts_that_are_not_listed_are_not_asked() {
    let site = Site::saying(ok(&one_add())).await;
    let rig = Rig::with(&site, with_token, |_| {});
    let port = site.address.port();
    for url in [
        format!("http://other.example:{port}{EXTRACT}?serverGens=[1,2]"),
        format!("https://gis.example:{port}{EXTRACT}?serverGens=[1,3]"),
        format!("http://127.0.0.1:{port}{EXTRACT}?serverGens=[1,4]"),
        format!("http://gis.example{EXTRACT}?serverGens=[1,5]"),
        format!("http://gis.example:{port}@other.example{EXTRACT}?serverGens=[1,6]"),
        format!("ftp://gis.example{EXTRACT}?serverGens=[1,7]"),
    ] {
        assert_eq!(dead(&rig.fetch_from(&url).await), ("fetch_host", Class::Permission), "{url}");
    }
    assert_eq!(site.seen().len(), 0);
}

#[tokio::test]
async fn nothing_is_posted_but_the_question_for_changes() {
    let site = Site::saying(ok(&one_add())).await;
    let rig = Rig::with(&site, with_token, |_| {});
    for target in [
        "/arcgis/rest/services/Hydrants/FeatureServer/0/deleteFeatures?where=1=1&serverGens=[1,2]",
        "/x?serverGens=[1,3]&y=/FeatureServer/extractChanges",
        "/FeatureServer/extractChanges/../0/deleteFeatures?serverGens=[1,4]",
    ] {
        assert_eq!(dead(&rig.fetch_from(&site.url(target)).await).0, "preset_value", "{target}");
    }
    assert_eq!(dead(&rig.fetch_from("nonsense?serverGens=[1,5]").await).0, "preset_value");
    assert_eq!(site.seen().len(), 0);
}

#[tokio::test]
async fn private_and_local_addresses_are_not_called_unless_they_are_allowed() {
    let site = Site::saying(ok(&one_add())).await;
    let closed = Rig::with(&site, |options| options.allow.clear(), |_| {});
    assert_eq!(dead(&closed.fetch(&site).await), ("fetch_address", Class::Permission));
    let elsewhere = Rig::with(&site, |options| options.allow = vec!["10.0.0.0/8".to_owned()], |_| {});
    assert_eq!(dead(&elsewhere.fetch(&site).await), ("fetch_address", Class::Permission));
    // Written as a number, it is an address all the same.
    let port = site.address.port();
    let literal = Rig::with(
        &site,
        |options| {
            options.allow.clear();
            options.hosts = vec![format!("http://2130706433:{port}")];
        },
        |_| {},
    );
    let url = format!("http://127.1:{port}{EXTRACT}?serverGens=[1,2]");
    assert_eq!(dead(&literal.fetch_from(&url).await), ("fetch_address", Class::Permission));
    assert_eq!(site.seen().len(), 0);
    assert_eq!(fetched(&Rig::new(&site).fetch(&site).await), counts(1, 0, 0, 0));
}

#[tokio::test]
async fn redirects_are_not_followed_wherever_they_lead() {
    let inner = Site::saying(ok(&one_add())).await;
    for to in
        [format!("http://127.0.0.1:{}/", inner.address.port()), inner.url("/x"), "http://169.254.169.254/".to_owned()]
    {
        let site = Site::saying(reply("302 Found", &format!("location: {to}\r\n"), "")).await;
        let rig = Rig::with(&site, |options| options.hosts.push(inner.url("")), |_| {});
        assert_eq!(dead(&rig.fetch(&site).await), ("fetch_redirect", Class::Permission));
    }
    assert_eq!(inner.seen().len(), 0);
}

#[tokio::test]
async fn addresses_that_a_server_gives_are_judged_like_that_of_the_sender() {
    let inner = Site::saying(ok(&one_add())).await;
    let to = format!("http://127.0.0.1:{}/x", inner.address.port());
    for answer in [
        json!({ "statusUrl": to }),
        json!({ "resultUrl": to }),
        json!({ "status": "Completed", "resultUrl": to }),
        json!({ "statusUrl": "//other.example/x" }),
    ] {
        let site = Site::saying(ok(&answer)).await;
        let rig = Rig::with(&site, with_token, |_| {});
        assert_eq!(dead(&rig.fetch(&site).await), ("fetch_host", Class::Permission), "{answer}");
    }
    assert_eq!(inner.seen().len(), 0);
}

#[tokio::test]
async fn a_token_goes_to_listed_hosts_only_and_is_never_shown() {
    let files = Site::saying(ok(&one_add())).await;
    let result = files.url("/changes.json");
    let site = Site::new(
        move |_, seen| {
            if seen.path() == EXTRACT { ok(&json!({ "resultUrl": result })) } else { ok(&json!({})) }
        },
    )
    .await;
    let rig = Rig::with(
        &site,
        |options| {
            with_token(options);
            options.hosts.push(files.url(""));
        },
        |_| {},
    );
    assert_eq!(fetched(&rig.fetch(&site).await), counts(1, 0, 0, 0));
    for seen in [&site.seen()[0], &files.seen()[0]] {
        assert!(seen.head.contains(&format!("x-esri-authorization: Bearer {TOKEN}\r\n")), "{}", seen.head);
        assert!(!seen.target.contains(TOKEN) && !seen.body.contains(TOKEN), "{seen:?}");
    }
    // Servers repeat what they were sent.
    let words = format!("Invalid token {TOKEN}");
    let error = json!({ "error": { "code": 498, "message": words } });
    for answer in [
        ok(&error),
        reply("403 Forbidden", "content-type: text/plain\r\n", &words),
        reply("500 No", "content-type: text/plain\r\n", &words),
        reply("302 Found", &format!("location: /{TOKEN}\r\n"), ""),
    ] {
        let site = Site::saying(answer).await;
        let written = Rig::with(&site, with_token, |_| {}).fetch(&site).await;
        let (Written::Dead(cause) | Written::Retry { cause, .. }) = written else { panic!("{written:?}") };
        assert!(!cause.message.contains(TOKEN), "{cause:?}");
    }
}

#[tokio::test]
async fn a_token_in_a_file_is_read_each_time_because_tokens_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let site = Site::new(|_, seen| {
        if seen.head.contains("Bearer new\r\n") { ok(&one_add()) } else { ok(&json!({ "error": { "code": 498 } })) }
    })
    .await;
    let rig = Rig::with(&site, |options| options.token = Some(Token::File(file.clone())), |_| {});
    let missing = rig.fetch(&site).await;
    assert!(
        matches!(&missing, Written::Retry { cause, counts: false, .. } if cause.code == "fetch_token"),
        "{missing:?}"
    );
    assert_eq!(site.seen().len(), 0);
    std::fs::write(&file, "old\n").unwrap();
    assert_eq!(dead(&rig.fetch(&site).await), ("fetch_token", Class::Permission));
    std::fs::write(&file, "new\n").unwrap();
    assert_eq!(fetched(&rig.fetch(&site).await), counts(1, 0, 0, 0));
}

#[test]
fn settings_that_cannot_work_are_refused_before_anything_is_asked() {
    let hosts = vec!["services.arcgis.com".to_owned()];
    let good = Options { hosts, token: Some(Token::Text(Secret::new("t0k3n"))), ..Options::default() };
    assert_eq!(check("a", &good).unwrap(), Vec::<String>::new());
    let notes =
        check("a", &Options { hosts: vec!["http://gis.example".to_owned()], token: None, ..good.clone() }).unwrap();
    assert!(notes[0].contains("gis.example") && notes[1].contains("no token"), "{notes:?}");
    for wrong in [
        Options { hosts: Vec::new(), ..good.clone() },
        Options { allow: vec!["10.0.0.1/8".to_owned()], ..good.clone() },
        Options { token: Some(Token::Text(Secret::new("a b"))), ..good.clone() },
        Options { token: Some(Token::File("/nowhere/token".into())), ..good.clone() },
    ] {
        let error = check("a", &wrong).unwrap_err().to_string();
        assert!(error.starts_with("source a: fetch: ") && !error.contains("a b"), "{error}");
    }
}
