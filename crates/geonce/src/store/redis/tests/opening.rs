//! Opening: settings that lose events, stores of other releases, encryption, passwords.

use super::{bench, fresh, sound};
use crate::error::{Error, Kind};
use crate::redis::encrypted::Encrypted;
use crate::store::conformance::START;
use crate::store::{Access, Options, Store, open};
use geonce_services::{Cluster, Redis as Server, free_port};
use std::sync::Arc;

fn refused(url: &str, access: Access) -> Error {
    match open(url, &Options::default(), access, "".as_ref()) {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_lose_events_is_refused_unless_that_is_accepted() {
    let server = Server::start(&[]);
    let (url, _) = fresh(&server.url());
    let settings = [
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ("appendfsync", "everysec", "always"),
        ("no-appendfsync-on-rewrite", "yes", "no"),
        ("appendonly", "no", "yes"),
    ];
    for (name, unfit, fit) in settings {
        assert_eq!(server.say(&["CONFIG", "SET", name, unfit]), "OK");
        let error = refused(&url, Access::Gateway);
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains(&format!("{name} is {unfit}")), "{error}");
        assert!(error.hint_text().unwrap().contains(&format!("CONFIG SET {name} {fit}")), "{:?}", error.hint_text());
        let lossy = Options { accept_loss: true, ..Options::default() };
        assert!(open(&url, &lossy, Access::Gateway, "".as_ref()).is_ok());
        assert_eq!(server.say(&["CONFIG", "SET", name, fit]), "OK");
    }
    assert!(open(&url, &Options::default(), Access::Gateway, "".as_ref()).is_ok());
    // Settings that cannot be read count as unfit.
    server.say(&["ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-config"]);
    let limited = url.replace("redis://", "redis://limited:secret@");
    let error = refused(&limited, Access::Gateway);
    assert!(
        error.to_string().contains("maxmemory-policy") && error.hint_text().unwrap().contains("CONFIG GET"),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"));
    let wrong = refused(&url.replace("redis://", "redis://limited:wrong@"), Access::Gateway);
    assert_eq!(wrong.kind(), Kind::Permission, "{wrong}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_primary_that_may_lose_events_is_not_used_until_it_is_set_right() {
    let server = Server::start(&[]);
    let (url, _) = fresh(&server.url());
    let bench = bench(&url);
    bench.fill(&["a"], START).await;
    // As if another server had taken over: the connection is made anew, and the settings are others.
    server.say(&["CONFIG", "SET", "appendfsync", "everysec"]);
    server.say(&["CLIENT", "KILL", "TYPE", "normal"]);
    server.say(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let error = bench.store.accept(vec![bench.event("b", START)], START).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("appendfsync is everysec"), "{error}");
    server.say(&["CONFIG", "SET", "appendfsync", "always"]);
    bench.fill(&["b"], START).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primary_of_a_cluster_is_looked_at() {
    // Its own: other tests would be refused meanwhile.
    let cluster = Cluster::start();
    let (url, prefix) = fresh(&cluster.url());
    let (own, _) = super::faults::owner(&cluster, &prefix);
    let other = (0..3).find(|&node| node != own).unwrap();
    cluster.nodes[other].say(&["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]);
    let text = refused(&url, Access::Gateway).to_string();
    assert!(text.contains(&format!(":{}", cluster.nodes[other].port())), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_another_release_or_kind_is_refused() {
    let server = Server::shared();
    let (url, prefix) = fresh(&server.url());
    let missing = refused(&url, Access::Tool);
    assert_eq!(missing.kind(), Kind::Missing);
    assert!(missing.to_string().contains("there is none"), "{missing}");
    let meta = format!("{{{prefix}}}:meta");
    assert_eq!(server.say(&["EXISTS", &meta]), "0", "a tool makes no store");
    let store = bench(&url).store;
    server.say(&["HSET", &meta, "schema", "2"]);
    let newer = refused(&url, Access::Gateway);
    assert_eq!(newer.kind(), Kind::Incompatible);
    assert!(newer.to_string().contains("schema 2"), "{newer}");
    let status = store.status().await.map_err(|error| error.kind());
    assert_eq!(status.err(), Some(Kind::Incompatible), "one that runs notices too");
    server.say(&["DEL", &meta]);
    server.say(&["SET", &meta, "somebody's"]);
    let foreign = refused(&url, Access::Gateway);
    assert_eq!(foreign.kind(), Kind::Incompatible);
    assert!(foreign.hint_text().unwrap().contains("prefix"), "{foreign}");
}

#[test]
fn an_address_where_nothing_is_says_so() {
    let error = refused(&format!("redis://me:geheim@127.0.0.1:{}", free_port()), Access::Gateway);
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("redis://me@127.0.0.1") && !error.to_string().contains("geheim"), "{error}");
    assert!(error.hint_text().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_where_asked_and_certificates_checked() {
    let encrypted = Encrypted::start();
    let (port, certificate) = (encrypted.port, &encrypted.certificate);
    let url = format!("rediss://localhost:{port}?prefix=tls");
    let bench = bench(&format!("{url}&ca={certificate}"));
    bench.fill(&["a"], START).await;
    sound(&bench).await;
    let untrusted = refused(&url, Access::Gateway);
    assert_eq!(untrusted.kind(), Kind::Unavailable, "{untrusted}");
    let missing = refused(&format!("{url}&ca=/not/there"), Access::Gateway);
    assert_eq!(missing.kind(), Kind::Invalid, "{missing}");
    let store: Arc<dyn Store> = bench.store;
    store.close().await.unwrap();
}
