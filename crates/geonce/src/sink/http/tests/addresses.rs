//! Which URLs, names and addresses are refused, however they are spelt.

use super::{NOW, Resolve, options, point, server, sink_with, status, system_resolver};
use crate::clock::ManualClock;
use crate::event::{Class, Outcome};
use crate::sink::http::build;
use crate::sink::http::guard::{Guard, Network};
use crate::sink::{Options, Sink, Written};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn resolving_to(addresses: Vec<SocketAddr>) -> Resolve {
    Arc::new(move |_, _| {
        let addresses = addresses.clone();
        Box::pin(async move { Ok(addresses) })
    })
}

/// Whether a URL is refused when the sink is opened.
fn refused(url: &str, allow: &[&str]) -> bool {
    let allow = allow.iter().map(|&network| network.to_owned()).collect();
    let options = Options { allow, ..Options::default() };
    build("out", url, &options, None, system_resolver(), Arc::new(ManualClock::new(NOW))).is_err()
}

#[test]
fn addresses_that_are_not_the_public_internet_are_refused() {
    let guard = Guard::default();
    for text in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
        "::",
        "::1",
        "::7f00:1",
        "::10.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:10.1.2.3",
        "::ffff:0:0",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:0:53aa:64c::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:0808:0808::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fdff::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ] {
        assert!(!guard.permits(text.parse().unwrap()), "{text}");
    }
    for text in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "168.63.129.17",
        "2606:4700::1111",
        "2a00:1450::1",
        "2001:200::1",
        "2003::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
    ] {
        assert!(guard.permits(text.parse().unwrap()), "{text}");
    }
}

#[test]
fn listed_networks_are_permitted_and_no_others() {
    let networks = ["10.1.0.0/16", "fd00:1::/32", "127.0.0.1", "172.16.0.0/12"];
    let guard = Guard::new(networks.iter().map(|text| text.parse().unwrap()).collect());
    for (text, expected) in [
        ("10.1.2.3", true),
        ("10.2.0.0", false),
        ("::ffff:10.1.2.3", true),
        ("::10.1.2.3", false),
        ("64:ff9b::10.1.2.3", false),
        ("127.0.0.1", true),
        ("127.0.0.2", false),
        ("172.31.0.1", true),
        ("172.32.0.1", true),
        ("192.168.0.1", false),
        ("fd00:1::5", true),
        ("fd00:2::5", false),
        ("169.254.169.254", false),
    ] {
        assert_eq!(guard.permits(text.parse::<IpAddr>().unwrap()), expected, "{text}");
    }
    for bad in [
        "",
        "10.0.0.0/",
        "10.0.0.0/0",
        "10.0.0.0/33",
        "10.0.0.1/8",
        "10.0.0.0/+8",
        "10.0.0/8",
        "::/0",
        "fd00::/129",
        "fd00::1/16",
        "0.0.0.0/0",
        "localhost",
        "10.0.0.0/8/8",
        "*",
        " 10.0.0.0/8",
        "10.0.0.0-10.0.0.9",
    ] {
        assert!(bad.parse::<Network>().is_err(), "{bad}");
        assert!(refused("https://example.com/", &[bad]), "{bad}");
    }
    let many: Vec<String> = (0..65).map(|n| format!("10.0.{n}.0/24")).collect();
    assert!(refused("http://example.com/", &many.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!("10.0.0.0/8".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
}

#[test]
fn urls_that_hide_where_they_lead_are_refused() {
    for url in [
        "http://127.0.0.1/",
        "http://127.0.0.1:8080/x",
        "http://127.1/",
        "http://127.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0X7F.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://127.0.0.1./",
        "http://0/",
        "http://0.0.0.0/",
        "http://[::1]/",
        "http://[::]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fd00:ec2::254]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://10.0.0.1/",
        "http://192.168.0.1/",
        "http://172.16.0.1/",
        "http://100.64.0.1/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://999.1.1.1/",
        "http://1.2.3/",
        "http://user@example.com/",
        "http://user:pass@example.com/",
        "http://example.com@127.0.0.1/",
        "http://127.0.0.1@example.com/",
        "http://example.com#@127.0.0.1/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:/",
        "http:///path",
        "http://",
        "http:",
        "http://exa mple.com/",
        "http://ex%61mple.com/",
        "http://[example.com]/",
        "http://[::1",
        "http://１２７.0.0.1/",
        "http://①②⑦.0.0.1/",
        "http://example.com\r\nx: y/",
        "http://a_b..c%00/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_",
        "HTTP:example.com",
        "//example.com/",
    ] {
        assert!(refused(url, &[]), "{url}");
    }
    for url in ["http://example.com", "https://example.com:8443/a?b=c", "http://8.8.8.8/", "https://[2606:4700::1111]/"]
    {
        assert!(!refused(url, &[]), "{url}");
    }
    assert!(!refused("http://127.0.0.1:9/", &["127.0.0.0/8"]));
    assert!(refused("http://127.1/", &["127.0.0.0/8"]), "even a listed network is written as people read it");
}

#[tokio::test]
async fn names_of_this_machine_are_refused_when_they_are_resolved() {
    for host in ["localhost", "LOCALHOST", "localhost."] {
        let sink = sink_with(&format!("http://{host}:9/"), &Options::default(), system_resolver());
        let error = sink.check().await.unwrap_err();
        // Where the system does not know the name, nothing is called either.
        assert!(error.hint_text().is_some() || error.to_string().contains("resolving"), "{error}");
        assert!(matches!(&sink.write(vec![point(1)]).await.unwrap()[0], Written::Retry { counts: false, .. }));
    }
}

#[tokio::test]
async fn of_a_mixed_answer_only_the_permitted_addresses_are_dialled() {
    let (address, seen) = server(|_| super::empty(status(200))).await;
    // The second server must never hear from us: 127.0.0.2 is not listed.
    let hidden = tokio::net::TcpListener::bind(("127.0.0.2", 0)).await.unwrap();
    let mixed = vec![
        hidden.local_addr().unwrap(),
        "[::1]:1".parse().unwrap(),
        "169.254.169.254:80".parse().unwrap(),
        address,
        SocketAddr::new("10.0.0.1".parse().unwrap(), 80),
    ];
    let listed = Options { allow: vec!["127.0.0.1".to_owned()], ..options() };
    let sink = sink_with("http://example.com/", &listed, resolving_to(mixed.clone()));
    let reached = sink.0.dialler.addresses().await.unwrap();
    assert_eq!(reached, [address]);
    assert_eq!(sink.write(vec![point(1)]).await.unwrap(), [Written::Done(Outcome::Applied)]);
    assert_eq!(seen.requests.lock().unwrap()[0].1["host"], "example.com");

    let unlisted = sink_with("http://example.com/", &Options { allow: Vec::new(), ..options() }, resolving_to(mixed));
    let Written::Retry { cause, counts: false, .. } = unlisted.write(vec![point(1)]).await.unwrap().remove(0) else {
        panic!("it must wait")
    };
    assert_eq!((cause.class, cause.code.as_str()), (Class::Permission, "http_address"));
    assert_eq!(seen.count(), 1);
}

#[tokio::test]
async fn a_name_is_resolved_once_for_a_connection() {
    let (address, _) = server(|_| super::empty(status(200))).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    // Rebinding: the first answer is permitted, every later one is not.
    let resolve: Resolve = Arc::new(move |_, _| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        let answer = if first { address } else { "127.0.0.2:1".parse().unwrap() };
        Box::pin(async move { Ok(vec![answer]) })
    });
    let listed = Options { allow: vec!["127.0.0.1".to_owned()], ..options() };
    let sink = sink_with("http://example.com/", &listed, resolve);
    assert_eq!(sink.write(vec![point(1)]).await.unwrap(), [Written::Done(Outcome::Applied)]);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}
