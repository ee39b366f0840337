//! Routes and headers against the crates `url` and `percent-encoding`.
//!
//! The input is texts with 0xFF between them, a byte that UTF-8 never holds: a method, the pattern of a route, a path, then names and
//! values of headers. 0xFE means a thousand bytes of long segments, so that short inputs reach the longest path.
#![no_main]

use beneath::ErrorKind;
use beneath::queue::policy::{HeaderRules, Route, RouteDenial, Routes};
use beneath_fuzz::{check_shown, stretched};
use libfuzzer_sys::fuzz_target;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fuzz_target!(|input: &[u8]| {
    let input = stretched(input);
    let Ok(texts) = input.split(|byte| *byte == 0xff).map(str::from_utf8).collect::<Result<Vec<_>, _>>()
    else {
        return;
    };
    let [method, pattern, raw, headers @ ..] = texts.as_slice() else { return };
    // The routes that are sure to be there, and after them the one that was asked for.
    let mut routes: Vec<(&str, String)> = (1..=3).map(|count| ("GET", "/{}".repeat(count))).collect();
    let mut built: Vec<Route> =
        routes.iter().map(|(method, pattern)| route(method, pattern).unwrap()).collect();
    if let Some(own) = route(method, pattern) {
        routes.push((method, (*pattern).to_owned()));
        built.push(own);
    }
    let built: Routes = built.into_iter().collect();
    check(&routes, &built, "GET", raw);
    check(&routes, &built, method, raw);
    filter(headers);
});

/// A route, if the pattern is one.
fn route(method: &str, pattern: &str) -> Option<Route> {
    let filled: Vec<&str> =
        pattern.split('/').map(|segment| if segment == "{}" { "x" } else { segment }).collect();
    let filled = filled.join("/");
    let expected = if method.is_empty() || method.chars().any(|letter| !letter.is_ascii_uppercase()) {
        Some(ErrorKind::InvalidName)
    } else if pattern.len() > 2048 || filled.contains(['{', '}']) || !faults(&filled).is_empty() {
        Some(ErrorKind::InvalidPath)
    } else {
        None
    };
    let got = Route::new(method, pattern);
    assert_eq!(got.as_ref().err().map(|error| error.kind()), expected, "{method:?} {pattern:?}");
    got.inspect_err(check_shown).ok()
}

fn parsed(path: &str) -> Url {
    Url::parse(&format!("http://host{path}")).expect("what follows a host and a slash is a path")
}

fn canonical(segment: &str) -> String {
    let text = percent_decode_str(segment).decode_utf8_lossy();
    utf8_percent_encode(&text, &ESCAPED).to_string()
}

/// Every reason to refuse a path, in no order; one that does not begin with a slash has no other.
fn faults(raw: &str) -> Vec<RouteDenial> {
    let Some(rest) = raw.strip_prefix('/') else { return vec![RouteDenial::NotAbsolute] };
    let mut faults = Vec::new();
    let mut fault = |is_so: bool, denial| {
        if is_so {
            faults.push(denial);
        }
    };
    let url = parsed(raw);
    fault(url.query().is_some() || url.fragment().is_some(), RouteDenial::QueryOrFragment);
    fault(raw.len() > 2048, RouteDenial::TooLong);
    let mut length = 0;
    for segment in rest.split('/') {
        let bytes: Vec<u8> = percent_decode_str(segment).collect();
        let text = String::from_utf8_lossy(&bytes);
        let around = format!("/x/{segment}/y");
        let around = parsed(&around);
        let leads_up = ["/x/y", "/y", "/x/", "/"].contains(&around.path());
        fault(bytes.is_empty(), RouteDenial::EmptySegment);
        fault(leads_up && !bytes.is_empty(), RouteDenial::DotSegment);
        // Each escape that was decoded has made the text two bytes shorter.
        let escapes = segment.matches('%').count();
        fault(segment.len() - bytes.len() != escapes * 2, RouteDenial::Escape);
        fault(percent_decode_str(&text).ne(text.bytes()), RouteDenial::Escape);
        fault(str::from_utf8(&bytes).is_err(), RouteDenial::Character);
        let control = |letter: char| matches!(u32::from(letter), 0..0x20 | 0x2f | 0x5c | 0x7f..0xa0);
        fault(text.contains(control), RouteDenial::Character);
        length += 1 + utf8_percent_encode(&text, &ESCAPED).map(str::len).sum::<usize>();
    }
    fault(length > 2048, RouteDenial::TooLong);
    faults
}

/// What a route has captured, if it fits: all are compared in their canonical forms.
fn captured(pattern: &str, raw: &str) -> Option<Vec<String>> {
    let (own, given): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), raw.split('/').collect());
    let fits = own.len() == given.len()
        && own.iter().zip(&given).all(|(own, given)| match *own {
            "{}" => percent_decode_str(given).count() <= 256,
            own => canonical(own) == canonical(given),
        });
    let wild = own.iter().zip(&given).filter(|(own, _)| **own == "{}");
    fits.then(|| wild.map(|(_, given)| percent_decode_str(given).decode_utf8_lossy().into_owned()).collect())
}

fn check(routes: &[(&str, String)], built: &Routes, method: &str, raw: &str) {
    let faults = faults(raw);
    let expected = routes.iter().enumerate().find_map(|(place, (own, pattern))| {
        (*own == method).then(|| captured(pattern, raw)).flatten().map(|captures| (place, captures))
    });
    let allowed = match (built.check(method, raw), expected) {
        (Ok(allowed), Some((place, captures))) if faults.is_empty() => {
            assert_eq!((allowed.route, &allowed.captures), (place, &captures), "{raw:?}");
            allowed
        }
        (Err(RouteDenial::NoRoute), None) if faults.is_empty() => return,
        (Err(denial), _) if faults.contains(&denial) => return,
        (got, expected) => panic!("{method:?} {raw:?}: {got:?}, expected {expected:?} and {faults:?}"),
    };
    // What a handler gets is what a parser of URLs makes of it, and of what the guest wrote.
    let url = parsed(&allowed.path);
    assert_eq!((url.path(), url.query(), url.fragment()), (allowed.path.as_str(), None, None), "{raw:?}");
    assert_eq!(allowed.method, method);
    let decoded = |url: &Url| -> Vec<String> {
        let segments = url.path_segments().expect("http has segments");
        segments.map(|segment| percent_decode_str(segment).decode_utf8().unwrap().into_owned()).collect()
    };
    // A parser drops spaces at the end; the mark keeps them.
    assert_eq!(decoded(&url), decoded(&parsed(&format!("{raw}?"))), "{raw:?}");
    assert!(decoded(&url).iter().all(|segment| !["", ".", ".."].contains(&segment.as_str())));
    assert_eq!(built.check(method, &allowed.path), Ok(allowed), "{raw:?}");
}

fn filter(texts: &[&str]) {
    let pairs = texts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let allowed = ["accept", "content-type", "if-match", "if-none-match"];
    let expected: Vec<(String, String)> = pairs
        .clone()
        .filter_map(|(name, value)| {
            let name = allowed.iter().find(|allowed| name.eq_ignore_ascii_case(allowed))?;
            let plain = value.chars().all(|letter| letter == ' ' || letter.is_ascii_graphic());
            plain.then(|| ((*name).to_owned(), value.to_owned()))
        })
        .collect();
    assert_eq!(HeaderRules::default().filter(pairs), expected);
}
