//! TLS against a server with a certificate made for the test.

use super::{NOW, Resolve, Seen, empty, options, point, serve, status};
use crate::clock::ManualClock;
use crate::event::Outcome;
use crate::sink::http::{Shared, build};
use crate::sink::{Sink, Written};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

/// A server whose certificate is for `name`, and roots that trust it.
async fn server(name: &str) -> (SocketAddr, Arc<Seen>, RootCertStore) {
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
    let seen = Arc::new(Seen::default());
    let shared = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve(stream, Arc::clone(&shared), Arc::new(|_| empty(status(200)))));
            }
        }
    });
    (address, seen, roots)
}

fn sink(url: &str, address: SocketAddr, roots: RootCertStore) -> Shared {
    let resolve: Resolve = Arc::new(move |_, _| Box::pin(async move { Ok(vec![address]) }));
    let clock = Arc::new(ManualClock::new(NOW));
    Shared(Arc::new(build("out", url, &options(), Some(roots), resolve, clock).unwrap()))
}

#[tokio::test]
async fn the_certificate_must_be_for_the_name_in_the_url() {
    let (address, seen, roots) = server("events.example").await;
    let right = sink("https://events.example/in", address, roots.clone());
    assert_eq!(right.write(vec![point(1)]).await.unwrap(), [Written::Done(Outcome::Applied)]);
    assert_eq!(right.check().await.unwrap().len(), 2, "no proof, no signature; but encrypted");

    let other_name = sink("https://other.example/in", address, roots);
    let unknown_root = {
        let (_, _, unrelated) = server("events.example").await;
        sink("https://events.example/in", address, unrelated)
    };
    for sink in [other_name, unknown_root] {
        let Written::Retry { cause, counts: false, .. } = sink.write(vec![point(2)]).await.unwrap().remove(0) else {
            panic!("it must not be trusted")
        };
        assert_eq!(cause.code, "http_tls");
        assert!(sink.check().await.is_err());
    }
    assert_eq!(seen.count(), 1);
}
