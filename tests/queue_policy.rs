//! What a guest may ask for: routes, headers, token.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use beneath::ErrorKind;
use beneath::queue::policy::{HeaderRules, Route, RouteDenial, Routes, Token};
use proptest::prelude::*;
use url::Url;

/// One to four segments of any text.
fn anything() -> Routes {
    (1..=4).map(|count| Route::new("GET", &"/{}".repeat(count)).unwrap()).collect()
}

/// Whether a path has a segment that leads up, as a URL parser reads it.
fn parser_changes(path: &str) -> bool {
    Url::parse(&format!("http://host{path}")).unwrap().path() != path
}

#[test]
fn refuses_each_form_before_it_is_matched() {
    use RouteDenial::{Character, DotSegment, EmptySegment, Escape, NoRoute, NotAbsolute, QueryOrFragment};
    let cases = [
        ("", NotAbsolute),
        ("a", NotAbsolute),
        ("http://host/a", NotAbsolute),
        ("/", EmptySegment),
        ("//a", EmptySegment),
        ("/a/", EmptySegment),
        ("/.", DotSegment),
        ("/a/..", DotSegment),
        ("/%2e%2E", DotSegment),
        ("/.%2e/a", DotSegment),
        ("/%252e%252e", Escape),
        ("/%", Escape),
        ("/%2", Escape),
        ("/%zz", Escape),
        ("/a%2fb", Character),
        ("/a%5Cb", Character),
        ("/a\\b", Character),
        ("/a%00", Character),
        ("/a\n", Character),
        ("/%ff", Character),
        ("/%c0%ae", Character),
        ("/a?b", QueryOrFragment),
        ("/a#b", QueryOrFragment),
        ("/a/b/c/d/e", NoRoute),
    ];
    for (raw, denial) in cases {
        assert_eq!(anything().check("GET", raw), Err(denial), "{raw:?}");
        if denial != NoRoute {
            assert_eq!(Routes::default().check("GET", raw), Err(denial), "{raw:?} without routes");
        }
    }
    for length in [2048, 2049] {
        let raw = format!("/{}", "a".repeat(length - 1));
        let denial = if length > 2048 { RouteDenial::TooLong } else { NoRoute };
        assert_eq!(anything().check("GET", &raw), Err(denial), "{length}");
    }
    let grows = format!("/{}", "\u{e4}".repeat(1000));
    assert_eq!(anything().check("GET", &grows), Err(RouteDenial::TooLong));
}

#[test]
fn the_control_that_matches_raw_text_lets_a_dot_segment_through() {
    // `[^/]+` as a matcher of segments.
    let naive = |raw: &str| raw[1..].split('/').all(|segment| !segment.is_empty());
    for raw in ["/a/..", "/%2e%2e", "/a/%2e./b"] {
        assert!(naive(raw) && parser_changes(raw), "{raw}");
        assert!(anything().check("GET", raw).is_err(), "{raw}");
    }
}

#[test]
fn a_route_allows_its_own_method_and_segments_only() {
    let routes = Routes::from_iter([Route::new("GET", "/issues/{}/comments").unwrap()]);
    let allowed = routes.check("GET", "/issues/4%32/comments").unwrap();
    assert_eq!(
        (allowed.path.as_str(), allowed.captures.as_slice()),
        ("/issues/42/comments", ["42".into()].as_slice())
    );
    for (method, raw) in [
        ("HEAD", "/issues/42/comments"),
        ("get", "/issues/42/comments"),
        ("GET", "/issues/42"),
        ("GET", "/Issues/42/comments"),
        ("GET", "/issues/42/comments/1"),
    ] {
        assert_eq!(routes.check(method, raw), Err(RouteDenial::NoRoute), "{method} {raw}");
    }
    let long = format!("/issues/{}/comments", "a".repeat(257));
    assert_eq!(routes.check("GET", &long), Err(RouteDenial::NoRoute));
    for (method, pattern) in [("get", "/a"), ("", "/a"), ("GET", "a"), ("GET", "/a/"), ("GET", "/../a")] {
        assert!(Route::new(method, pattern).is_err(), "{method} {pattern}");
    }
}

#[test]
fn only_braces_that_are_written_so_match_any_segment() {
    let escaped = Routes::from_iter([Route::new("GET", "/%7b%7D/{}").unwrap()]);
    assert_eq!(escaped.check("GET", "/secret/a"), Err(RouteDenial::NoRoute));
    assert_eq!(escaped.check("GET", "/{}/a").unwrap().path, "/%7B%7D/a");
    // What would be read as a pattern elsewhere must not be a literal here that no honest request meets.
    for pattern in ["/{id}", "/a/{}b", "/{}{}", "/{", "/a}"] {
        let error = Route::new("GET", pattern).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{pattern}");
    }
    assert!(Route::new("GET", "/%7Bid%7D").is_ok());
}

#[test]
fn a_pattern_that_no_path_can_match_is_refused() {
    let error = Route::new("GET", &format!("/{}", "\u{e4}".repeat(1000))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidPath);
    // 682 wildcards are 2,046 bytes as they are written, and half of that in the shortest path they match.
    let wide = Routes::from_iter([Route::new("GET", &"/{}".repeat(682)).unwrap()]);
    assert!(wide.check("GET", &"/a".repeat(682)).is_ok());
}

#[test]
fn what_is_allowed_names_its_route() {
    let routes = Routes::from_iter(
        [("POST", "/a"), ("GET", "/a"), ("GET", "/{}")]
            .map(|(method, pattern)| Route::new(method, pattern).unwrap()),
    );
    for (raw, route) in [("/a", 1), ("/%61", 1), ("/b", 2)] {
        assert_eq!(routes.check("GET", raw).unwrap().route, route, "{raw}");
    }
}

#[test]
fn drops_headers_that_are_not_allowed_or_hide_another() {
    let rules = HeaderRules::new(["X-One"]);
    let raw = [("x-one", "a"), ("X-ONE", "b"), ("x-one", "c\nhost: d"), ("x-one ", "e"), ("accept", "f")];
    let kept = rules.filter(raw);
    assert_eq!(kept, [("x-one".into(), "a".into()), ("x-one".into(), "b".into())]);
    // Written out with one byte a character, these are a line break and a host.
    let cut = "a\u{10d}\u{10a}host: b";
    let bytes: Vec<u8> = cut.chars().map(|letter| letter as u8).collect();
    assert!(bytes.windows(2).any(|pair| pair == b"\r\n"));
    assert!(rules.filter([("x-one", cut), ("x-one", "\u{e4}")]).is_empty());
}

#[test]
fn a_token_matches_itself_only_and_is_not_shown() {
    let (one, other) = (Token::generate().unwrap(), Token::generate().unwrap());
    assert!(one.matches(one.as_str()) && !one.matches(other.as_str()));
    assert!(!one.matches(&one.as_str()[1..]) && !one.matches(""));
    assert!(!format!("{one:?}").contains(one.as_str()));
    let read = Token::parse(one.as_str()).unwrap();
    assert!(read.matches(one.as_str()) && !read.matches(other.as_str()));
    let short = &one.as_str()[1..];
    let shouted = format!("{short}A");
    for raw in ["", " ", short, &shouted, &format!("{}\n", one.as_str())] {
        let error = Token::parse(raw).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{raw:?}");
        assert!(!error.to_string().contains(short), "{error}");
    }
}

proptest! {
    #[test]
    fn what_is_allowed_is_canonical_and_a_parser_of_urls_agrees(
        raw in "(/([a-zA-Z0-9.%/\\\\{} ~:;@]|%2[eEfF5]|%[0-9a-f]{2}|\\PC){0,6}){1,4}"
    ) {
        if let Ok(allowed) = anything().check("GET", &raw) {
            prop_assert!(!parser_changes(&allowed.path), "{raw:?} is {:?}", allowed.path);
            let again = anything().check("GET", &allowed.path).unwrap();
            prop_assert_eq!(&again, &allowed);
            let inner = Url::parse(&format!("http://host{}", allowed.path)).unwrap();
            prop_assert_eq!(inner.path_segments().unwrap().count(), allowed.captures.len());
        }
    }
}
