//! Addresses, names and headers, as they are understood.

use crate::load::fetch::FetchOptions;
use crate::load::fetch::address::Address;
use crate::load::fetch::answer::{file_name, pages_name};
use crate::load::fetch::download::Got;
use crate::load::fetch::pages::links::in_header;

fn address(text: &str) -> Address {
    Address::parse(text).unwrap().0
}

#[test]
fn addresses_for_keys_have_no_credentials_and_sorted_queries() {
    let secret = ["sid".to_owned()];
    for (text, key) in [
        ("HTTP://Data.Example:80/a/../b?b=2&a=1", "http://data.example/b?a=1&b=2"),
        ("https://me:mine@data.example:443/?", "https://data.example/"),
        ("https://data.example/a?x=2&x=1&b", "https://data.example/a?b&x=2&x=1"),
        ("https://data.example/a?access_token=t&b=1#c", "https://data.example/a?b=1"),
        ("https://s3.example/a?X-Amz-Signature=1&x-amz-date=2&versionId=3", "https://s3.example/a?versionId=3"),
        ("https://data.example/a?SID=1&key=2", "https://data.example/a?key=2"),
        ("https://data.example/a?a=%20&a=+", "https://data.example/a?a=%20&a=+"),
    ] {
        assert_eq!(address(text).for_key(&secret), key);
    }
}

#[test]
fn secrets_in_addresses_are_not_shown() {
    let secret = ["sid".to_owned()];
    for (text, shown) in [
        ("https://me:mine@data.example/a?token=abc&x=1", "https://data.example/a?token=…&x=1"),
        ("https://data.example/a?Api_Key=abc&%74oken=abc", "https://data.example/a?Api_Key=…&%74oken=…"),
        ("https://data.example/a?sid=1&X-Goog-Anything=abc", "https://data.example/a?sid=…&X-Goog-Anything=…"),
    ] {
        assert_eq!(address(text).shown(&secret), shown);
    }
    assert!(address(&format!("https://data.example/{}", "a".repeat(5_000))).shown(&[]).len() < 500);
    assert_eq!(format!("{:?}", address("http://a:b@c/?token=d")), "http://c/?token=…");
}

#[test]
fn what_is_no_address_of_a_web_server_is_refused_without_repeating_it() {
    let long = format!("http://data.example/{}", "s3cret".repeat(2_000));
    for text in [
        "s3cret",
        "",
        "ftp://s3cret@data.example/",
        "file:///s3cret",
        "http://",
        "http://s3cret:x@:80/",
        "data:,s3cret",
        &long,
    ] {
        let error = Address::parse(text).unwrap_err().to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn a_next_page_stays_encrypted() {
    let page = address("https://data.example/items");
    let next = |text: &str| page.next_page(address(text)).map(|next| next.for_key(&[]));
    assert_eq!(next("http://data.example/items?a=1").as_deref(), Some("https://data.example/items?a=1"));
    assert_eq!(next("https://other.example/items").as_deref(), Some("https://other.example/items"));
    assert_eq!(next("http://other.example/items"), None);
    assert_eq!(next("http://data.example:8080/items"), None);
    let odd = address("https://data.example:8443/items").next_page(address("http://data.example:8443/a")).unwrap();
    assert_eq!(odd.for_key(&[]), "https://data.example:8443/a");
}

#[test]
fn files_get_names_that_are_safe_and_tell_the_format() {
    let name = |disposition: Option<&str>, kind: Option<&str>, url: &str| {
        let got = Got {
            address: address(url),
            content_type: kind.map(str::to_owned),
            disposition: disposition.map(str::to_owned),
            etag: None,
            last_modified: None,
            content_crs: None,
            gzip: false,
            next: None,
            bytes: 0,
            unchanged: false,
        };
        file_name(&got, &address("http://data.example/asked"))
    };
    for (disposition, kind, url, expected) in [
        (None, None, "http://h/a/parcels.GPKG?x=1", "parcels.GPKG"),
        (None, Some("application/zip"), "http://h/download", "download.zip"),
        (None, Some("text/csv; charset=utf-8"), "http://h/export.php", "export.php.csv"),
        (None, Some("application/geopackage+sqlite3"), "http://h/", "asked.gpkg"),
        (None, None, "http://h/", "asked"),
        (None, None, "http://h/caf%C3%A9%20zones.geojson", "café zones.geojson"),
        (None, None, "http://h/..%2F..%2Fetc%2Fpasswd", "passwd"),
        (None, None, "http://h/a%00b%1B%5B31m.csv", "a_b__31m.csv"),
        (Some("attachment; filename=\"..\\\\..\\\\x.csv\""), None, "http://h/a", "x.csv"),
        (Some("attachment; filename=plain.csv; x=y"), None, "http://h/a", "plain.csv"),
        (Some("attachment; filename=\"a;b=c.csv\"; size=3"), None, "http://h/a", "a_b=c.csv"),
        (Some("attachment; filename=\"old.csv\"; filename*=UTF-8''z%C3%B6nen.csv"), None, "http://h/a", "zönen.csv"),
        (Some("attachment; filename*=x'; filename=.hidden.csv"), None, "http://h/a", "hidden.csv"),
        (Some("attachment; filename=\"unclosed.csv"), None, "http://h/a", "unclosed.csv"),
        (Some("attachment; filename=\"\""), Some("text/csv"), "http://h/..", "asked.csv"),
        (Some("="), None, "http://h/a.shp", "a.shp"),
    ] {
        assert_eq!(name(disposition, kind, url), expected, "{disposition:?} {kind:?} {url}");
    }
    let long = name(None, None, &format!("http://h/{}.geojson", "ü".repeat(400)));
    assert!(long.len() <= 120 && long.ends_with("ü.geojson"), "{long}");
    for (url, expected) in [
        ("http://h/collections/parcels/items?limit=1", "parcels.geojsonl"),
        ("http://h/arcgis/rest/services/roads/FeatureServer/0/query?where=1", "roads.geojsonl"),
        ("http://h/", "pages.geojsonl"),
        ("http://h/api/zones.json", "zones.geojsonl"),
    ] {
        assert_eq!(pages_name(&address(url)), expected);
    }
}

#[test]
fn next_is_found_among_the_links_of_a_header() {
    for (values, next) in [
        (vec!["<http://h/2>; rel=\"next\""], Some("http://h/2")),
        (
            vec!["<http://h/1>; rel=prev, <http://h/2?a=1,2>; title=\"a, b; rel=\\\"x\"; rel=\"last next\""],
            Some("http://h/2?a=1,2"),
        ),
        (vec!["</a>;rel=self", "</b>; type=x; REL=Next"], Some("/b")),
        (vec!["</a>; rel=nextish", "<b; rel=next", "c; rel=next", "", ",,,"], None),
    ] {
        let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
        assert_eq!(in_header(&values).as_deref(), next, "{values:?}");
    }
}

#[test]
fn headers_of_the_user_are_checked_and_their_values_never_repeated() {
    let mut options = FetchOptions::default();
    for good in ["Authorization=Bearer s3cret=", "X-Key: s3cret", "x=y:z", "empty="] {
        options.add_header(good).unwrap();
    }
    assert_eq!(options.headers[0].1.bytes(), b"Bearer s3cret=");
    for bad in [
        "s3cret",
        "=s3cret",
        "bad name=s3cret",
        "x=s3cret\r\ny",
        "Host=s3cret",
        "Range: s3cret",
        "Content-Length=s3cret",
    ] {
        let error = FetchOptions::default().add_header(bad).unwrap_err().to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
    let long = format!("x={}", "y".repeat(9_000));
    assert!(FetchOptions::default().add_header(&long).is_err());
}
