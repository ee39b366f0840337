//! The reader of S3 listings: whatever comes, a bounded answer; and a page that is written out reads back as it was.
#![no_main]

use std::fmt::Write as _;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use artifacts::store::object::Listed;

/// The crate's own files: through the crate they would bring all of the cloud's client with them.
#[path = "../../src/artifacts/store/s3/page.rs"]
mod page;
#[path = "../../src/artifacts/store/s3/xml.rs"]
mod xml;

mod artifacts {
    pub mod store {
        pub mod object {
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct Listed {
                pub key: Vec<u8>,
                pub size: u64,
                pub etag: Option<String>,
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    match input {
        [b'\0', rest @ ..] => {
            if let Ok(page) = Written::arbitrary_take_rest(Unstructured::new(rest)) {
                read_back(page);
            }
        }
        raw => bounded(raw),
    }
});

fn bounded(raw: &[u8]) {
    match page::parse(raw) {
        Ok(page) => {
            let longest = |text: &Option<String>| text.as_ref().map_or(0, String::len);
            assert!(
                page.objects.iter().all(|object| object.key.len() <= 4096 && longest(&object.etag) <= 4096)
            );
            assert!(page.next.as_ref().is_none_or(|token| matches!(token.len(), 1..=4096)));
            // Each object takes at least the two elements that it must have.
            assert!(page.objects.len() * "<Contents><Key></Key><Size>0</Size></Contents>".len() <= raw.len());
            assert!(find(raw, b"ListBucketResult"), "{page:?}");
        }
        Err(reason) => {
            assert!(reason.starts_with("listing ") || reason.starts_with("answer "), "{reason}")
        }
    }
}

fn find(raw: &[u8], part: &[u8]) -> bool {
    raw.windows(part.len()).any(|window| window == part)
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
    between: Between,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Style {
    Plain,
    Decimal,
    Hexadecimal,
    Section,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Between {
    Nothing,
    Space,
    Comment,
    Owner,
    Empty,
}

fn read_back(page: Written) {
    let head = {
        let mut head = String::new();
        if page.encoded {
            head.push_str("<EncodingType>url</EncodingType>");
        }
        match page.token.as_deref() {
            None => head.push_str("<IsTruncated>false</IsTruncated>"),
            Some(token) => {
                let token = text(token, &[]);
                let _ = write!(
                    head,
                    "<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
                );
            }
        }
        head
    };
    let mut body = String::new();
    let mut expected = Vec::new();
    for object in &page.objects {
        let (key, bytes) = if page.encoded {
            (percent(&object.key), object.key.clone())
        } else {
            let key = String::from_utf8_lossy(&object.key).into_owned();
            (key.clone(), writable(&key).into_bytes())
        };
        let etag = object.etag.as_deref().map(|etag| format!("<ETag>{}</ETag>", text(etag, &object.style)));
        let etag = etag.unwrap_or_default();
        let (before, after) = if object.etag_first { (etag.as_str(), "") } else { ("", etag.as_str()) };
        let between = match object.between {
            Between::Nothing => "",
            Between::Space => "\n    ",
            Between::Comment => "<!-- <Key>x</Key> -->",
            Between::Owner => "<Owner><ID>o</ID><Key>k</Key><Size>z</Size></Owner>",
            Between::Empty => "<StorageClass/>",
        };
        let _ = write!(
            body,
            "<Contents>{before}{between}<Key>{}</Key>{between}<Size>{}</Size>{after}{between}</Contents>{between}",
            text(&key, &object.style),
            object.size,
        );
        let etag = object.etag.as_deref().map(writable);
        expected.push(Listed { key: bytes, size: object.size, etag });
    }
    let body = if page.last { body + &head } else { head + &body };
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{body}</ListBucketResult>"
    );
    let next = page.token.as_deref().map(writable);
    let too_long = |text: &str| text.len() > 4096;
    let overlong = page.objects.iter().any(|object| {
        object.etag.as_deref().is_some_and(|etag| too_long(&writable(etag)))
            || if page.encoded {
                too_long(&percent(&object.key))
            } else {
                too_long(&writable(&String::from_utf8_lossy(&object.key)))
            }
    }) || next.as_deref().is_some_and(too_long);
    let expected = match next {
        _ if overlong => Err("answer has an overlong text"),
        Some(next) if next.is_empty() => Err("listing goes on without a token"),
        next => Ok(page::Page { objects: expected, next }),
    };
    assert_eq!(page::parse(xml.as_bytes()), expected, "{xml}");
}

/// Without what XML cannot hold.
fn writable(text: &str) -> String {
    text.chars().filter(|character| *character != '\0').collect()
}

/// As S3 encodes a key: a space becomes a plus, and what is no letter, digit or one of a few marks becomes `%XX`.
fn percent(key: &[u8]) -> String {
    key.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => {
                text.push(char::from(*byte))
            }
            b' ' => text.push('+'),
            // Not every server writes its digits in capitals.
            0x80.. => text.push_str(&format!("%{byte:02x}")),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

/// As the text of an element.
fn text(text: &str, style: &[Style]) -> String {
    let mut styles = style.iter().copied().cycle();
    writable(text).chars().fold(String::new(), |mut xml, character| {
        match (styles.next().unwrap_or(Style::Plain), character) {
            (Style::Decimal, _) => xml.push_str(&format!("&#{};", u32::from(character))),
            (Style::Hexadecimal, _) => xml.push_str(&format!("&#x{:x};", u32::from(character))),
            (Style::Section, character) if character != '\r' => {
                xml.push_str(&format!("<![CDATA[{character}]]>"))
            }
            (_, '&') => xml.push_str("&amp;"),
            (_, '<') => xml.push_str("&lt;"),
            (_, '>') => xml.push_str("&gt;"),
            (_, '"') => xml.push_str("&quot;"),
            (_, '\'') => xml.push_str("&apos;"),
            // A plain one is the end of a line, however it is spelled.
            (_, '\r') => xml.push_str("&#13;"),
            (_, character) => xml.push(character),
        }
        xml
    })
}
