//! The reader of S3 listings: whatever comes, a bounded answer; and a page that is written out reads back as it was.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use beneath::artifacts::fuzzing::read_page;
use libfuzzer_sys::fuzz_target;

/// Longest text of one element.
const MOST: usize = 4096;

fuzz_target!(|input: &[u8]| {
    match input {
        [b'\0', rest @ ..] => {
            if let Ok(page) = Written::arbitrary_take_rest(Unstructured::new(rest)) {
                read_back(&page);
            }
        }
        raw => bounded(raw),
    }
});

fn bounded(raw: &[u8]) {
    match read_page(raw) {
        Ok((objects, next)) => {
            let longest = |text: &Option<String>| text.as_ref().map_or(0, String::len);
            assert!(objects.iter().all(|(key, _, etag)| key.len() <= MOST && longest(etag) <= MOST));
            assert!(next.is_none_or(|token| matches!(token.len(), 1..=MOST)));
            // Each object takes at least the two elements that it must have.
            assert!(objects.len() * "<Contents><Key></Key><Size>0</Size></Contents>".len() <= raw.len());
            let part = b"ListBucketResult";
            assert!(raw.windows(part.len()).any(|window| window == part), "{objects:?}");
        }
        Err(reason) => {
            assert!(reason.starts_with("listing ") || reason.starts_with("answer "), "{reason}")
        }
    }
}

#[derive(Arbitrary, Debug)]
struct Written {
    encoded: bool,
    /// Whether the elements about the whole page come last.
    last: bool,
    token: Option<String>,
    objects: Vec<Object>,
}

#[derive(Arbitrary, Debug)]
struct Object {
    key: Vec<u8>,
    size: u64,
    etag: Option<String>,
    etag_first: bool,
    /// How each character is written, over and over.
    style: Vec<Style>,
    /// What is between the elements, by its place in the list.
    between: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Style {
    Plain,
    Decimal,
    Hexadecimal,
    Section,
}

/// The longest version that a listing may have.
const VERSION_MOST: usize = 512;

const BETWEEN: [&str; 5] = [
    "",
    "\n    ",
    "<!-- <Key>x</Key> -->",
    "<Owner><ID>o</ID><Key>k</Key><Size>z</Size></Owner>",
    "<StorageClass/>",
];

fn read_back(page: &Written) {
    let (mut body, mut objects, mut overlong) = (String::new(), Vec::new(), false);
    let mut element = |name: &str, text: &str, style: &[Style]| {
        let text = writable(text);
        overlong |= text.len() > MOST;
        format!("<{name}>{}</{name}>", spelled(&text, style))
    };
    for Object { key, size, etag, etag_first, style, between } in &page.objects {
        let between = BETWEEN[usize::from(*between) % BETWEEN.len()];
        let text = if page.encoded { percent(key) } else { String::from_utf8_lossy(key).into_owned() };
        let read = if page.encoded { key.clone() } else { writable(&text).into_bytes() };
        objects.push((read, *size, etag.as_deref().map(|etag| quoted(writable(etag)))));
        let (key, size) = (element("Key", &text, style), element("Size", &size.to_string(), &[]));
        let etag = etag.as_ref().map_or(String::new(), |etag| element("ETag", etag, style));
        let (before, after) = if *etag_first { (etag.as_str(), "") } else { ("", etag.as_str()) };
        body +=
            &format!("<Contents>{before}{between}{key}{between}{size}{after}{between}</Contents>{between}");
    }
    let encoding = if page.encoded { "<EncodingType>url</EncodingType>" } else { "" };
    let truncated = element("IsTruncated", &page.token.is_some().to_string(), &[]);
    let token =
        page.token.as_ref().map_or(String::new(), |token| element("NextContinuationToken", token, &[]));
    let head = format!("{encoding}{truncated}{token}");
    let body = if page.last { body + &head } else { head + &body };
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{body}</ListBucketResult>"
    );
    let is_long =
        |object: &Object| object.etag.as_deref().is_some_and(|etag| writable(etag).len() > VERSION_MOST);
    let long_version = page.objects.iter().any(is_long);
    let read = read_page(xml.as_bytes());
    let expected = match page.token.as_deref().map(writable) {
        // Whichever comes first.
        _ if overlong && long_version => {
            assert!(read.is_err(), "{xml}");
            return;
        }
        _ if overlong => Err("answer has an overlong text"),
        _ if long_version => Err("listing has an overlong version"),
        Some(next) if next.is_empty() => Err("listing goes on without a token"),
        next => Ok((objects, next)),
    };
    assert_eq!(read, expected, "{xml}");
}

/// With the quotes of a header.
fn quoted(etag: String) -> String {
    match etag.ends_with('"') {
        true => etag,
        false => format!("\"{etag}\""),
    }
}

/// Without what XML cannot hold.
fn writable(text: &str) -> String {
    text.chars().filter(|character| *character != '\0').collect()
}

/// As S3 encodes a key: a space becomes a plus, and what is no letter, digit or one of a few marks becomes `%XX`.
fn percent(key: &[u8]) -> String {
    let encode = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => {
            char::from(*byte).to_string()
        }
        b' ' => "+".to_owned(),
        // Not every server writes its digits in capitals.
        0x80.. => format!("%{byte:02x}"),
        _ => format!("%{byte:02X}"),
    };
    key.iter().map(encode).collect()
}

/// As the text of an element.
fn spelled(text: &str, style: &[Style]) -> String {
    let mut styles = style.iter().copied().cycle();
    let spell = |character: char| match (styles.next().unwrap_or(Style::Plain), character) {
        (Style::Decimal, _) => format!("&#{};", u32::from(character)),
        (Style::Hexadecimal, _) => format!("&#x{:x};", u32::from(character)),
        // A plain one is the end of a line, however it is spelled.
        (_, '\r') => "&#13;".to_owned(),
        (Style::Section, character) => format!("<![CDATA[{character}]]>"),
        (Style::Plain, '&') => "&amp;".to_owned(),
        (Style::Plain, '<') => "&lt;".to_owned(),
        (Style::Plain, '>') => "&gt;".to_owned(),
        (Style::Plain, '"') => "&quot;".to_owned(),
        (Style::Plain, '\'') => "&apos;".to_owned(),
        (Style::Plain, character) => character.to_string(),
    };
    text.chars().map(spell).collect()
}
