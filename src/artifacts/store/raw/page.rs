//! One page of a listing as S3 and GCS write it, read with bounds.
//!
//! Problem: the page comes over the network and carries keys that others chose. Plain XML cannot hold every key
//! (a control character makes it unreadable), so the request asks for URL-encoded keys.
//!
//! Defence: only the few elements of interest are read, at their exact depth. A server that says that it encodes, and does not,
//! is found out by a key that no encoder writes.
//!
//! What remains: of such a server, a page on which all keys could be encoded is decoded. A key that was changed by it is not found
//! when it is fetched.

use percent_encoding::percent_decode;

use super::cloud::Page;
use super::xml::{self, Malformed};
use crate::artifacts::store::bounded::VERSION_MAX;
use crate::artifacts::store::object::{Listed, quoted};

#[derive(Default)]
struct Object {
    key: Option<String>,
    size: Option<u64>,
    etag: Option<String>,
    put_at: Option<i64>,
}

/// The query of such a page.
pub(crate) fn list_type_2(prefix: &str, token: Option<&str>) -> String {
    let token = token.map_or(String::new(), |token| format!("&continuation-token={token}"));
    format!("list-type=2&encoding-type=url&prefix={prefix}{token}")
}

/// Reads a `ListBucketResult`.
pub(crate) fn parse(bytes: &[u8]) -> Result<Page, Malformed> {
    let mut object = Object::default();
    let mut objects = Vec::new();
    let (mut truncated, mut token, mut encoded, mut whole) = (None, None, false, false);
    xml::read(bytes, |names, text| {
        match names {
            ["ListBucketResult", "IsTruncated"] => truncated = Some(is_true(text.trim())?),
            ["ListBucketResult", "NextContinuationToken"] => token = Some(text),
            ["ListBucketResult", "EncodingType"] => encoded = text == "url",
            ["ListBucketResult", "Contents", "Key"] => object.key = Some(text),
            ["ListBucketResult", "Contents", "Size"] => {
                object.size = Some(text.trim().parse().map_err(|_| "listing has a bad size")?);
            }
            ["ListBucketResult", "Contents", "ETag"] if text.len() > VERSION_MAX => {
                return Err("listing has an overlong version");
            }
            ["ListBucketResult", "Contents", "ETag"] => object.etag = Some(text),
            ["ListBucketResult", "Contents", "LastModified"] => {
                object.put_at =
                    chrono::DateTime::parse_from_rfc3339(text.trim()).ok().map(|time| time.timestamp());
            }
            ["ListBucketResult", "Contents"] => objects.push(std::mem::take(&mut object)),
            ["ListBucketResult"] => whole = true,
            _ => {}
        }
        Ok(())
    })?;
    let next = match (truncated, token.filter(|token| !token.is_empty())) {
        _ if !whole => return Err("answer is no listing"),
        (Some(false), _) => None,
        (Some(true), None) => return Err("listing goes on without a token"),
        // A token alone says that there is more as well.
        (_, token) => token,
    };
    let encoded = encoded && objects.iter().all(|object| object.key.as_deref().is_none_or(could_be_encoded));
    let objects = objects.into_iter().map(|object| listed(object, encoded));
    Ok(Page { objects: objects.collect::<Result<_, _>>()?, next })
}

/// What an answer says that is neither must not end a listing: what follows would look deleted.
fn is_true(text: &str) -> Result<bool, Malformed> {
    match () {
        () if text.eq_ignore_ascii_case("true") => Ok(true),
        () if text.eq_ignore_ascii_case("false") => Ok(false),
        () => Err("listing does not say whether it goes on"),
    }
}

fn listed(object: Object, encoded: bool) -> Result<Listed, Malformed> {
    let (Some(key), Some(size)) = (object.key, object.size) else {
        return Err("listing has an object without key or size");
    };
    // As HTML forms do it: a plus is a space, and a real plus comes as %2B.
    let key =
        if encoded { percent_decode(key.replace('+', " ").as_bytes()).collect() } else { key.into_bytes() };
    Ok(Listed { key, size, etag: object.etag.map(quoted), put_at: object.put_at })
}

/// Whether an encoder could have written the text: none leaves a space or what is not ASCII as it is, and none escapes a letter or
/// a digit.
fn could_be_encoded(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let escaped = match byte {
            b'%' => [bytes.next(), bytes.next()],
            byte if byte.is_ascii_graphic() => continue,
            _ => return false,
        };
        let [Some(high), Some(low)] =
            escaped.map(|digit| digit.and_then(|digit| char::from(digit).to_digit(16)))
        else {
            return false;
        };
        if u8::try_from(high * 16 + low).is_ok_and(|byte| byte.is_ascii_alphanumeric()) {
            return false;
        }
    }
    true
}

/// Reads a page into objects, each a key, a size and a version, and the token of the next page: for the fuzz targets alone.
#[cfg(all(fuzzing, feature = "aws"))]
#[allow(clippy::missing_errors_doc, clippy::type_complexity)]
pub fn read_page(bytes: &[u8]) -> Result<(Vec<(Vec<u8>, u64, Option<String>)>, Option<String>), Malformed> {
    let page = parse(bytes)?;
    let objects = page.objects.into_iter().map(|object| (object.key, object.size, object.etag));
    Ok((objects.collect(), page.next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
    use proptest::prelude::*;
    use proptest::{collection, option, sample};

    fn page(body: &str) -> Result<Page, Malformed> {
        parse(format!("<?xml version=\"1.0\"?><ListBucketResult>{body}</ListBucketResult>").as_bytes())
    }

    #[test]
    fn keys_come_back_byte_for_byte() {
        let cases: [(&str, &[u8]); 7] = [
            ("a%2Fb", b"a/b"),
            ("a/b+c%2Bd", b"a/b c+d"),
            ("x%0Ay", b"x\ny"),
            ("%252e%252e/x", b"%2e%2e/x"),
            ("%FF", b"\xff"),
            ("..%2Fetc", b"../etc"),
            ("a&amp;b", b"a&b"),
        ];
        for (text, key) in cases {
            let body = format!(
                "<EncodingType>url</EncodingType><Contents><Key>{text}</Key><Size>1</Size>\
                 <ETag>&quot;e&quot;</ETag><Owner><ID>o</ID></Owner></Contents>"
            );
            let listed = page(&body).unwrap().objects.remove(0);
            assert_eq!((listed.key.as_slice(), listed.etag.as_deref()), (key, Some("\"e\"")), "{text}");
        }
    }

    #[test]
    fn key_is_literal_when_the_server_does_not_encode() {
        let body = "<Contents><Key>a+b%20</Key><Size>1</Size></Contents>";
        assert_eq!(page(body).unwrap().objects.remove(0).key, b"a+b%20");
    }

    #[test]
    fn server_that_says_it_encodes_and_does_not_is_found_out() {
        let page = |proof: &str| {
            let object = |key| format!("<Contents><Key>{key}</Key><Size>1</Size><ETag>e</ETag></Contents>");
            page(&format!("<EncodingType>url</EncodingType>{}{}", object("a+b%20c"), object(proof))).unwrap()
        };
        for proof in ["a b", "100%", "%zz", "%4", "%41", "\u{e9}"] {
            let page = page(proof);
            let keys: Vec<_> = page.objects.iter().map(|object| object.key.as_slice()).collect();
            assert_eq!(keys, [b"a+b%20c", proof.as_bytes()], "{proof}");
            assert_eq!(page.objects[0].etag.as_deref(), Some("\"e\""));
        }
        for no_proof in ["plain", "a%2Fb", "a+b", "~!*'()"] {
            assert_eq!(page(no_proof).objects[0].key, b"a b c", "{no_proof}");
        }
    }

    #[test]
    fn page_is_the_last_only_if_nothing_says_that_there_is_more() {
        let token = "<NextContinuationToken>t</NextContinuationToken>";
        let none = "<NextContinuationToken></NextContinuationToken>";
        let says = |text: &str, rest: &str| format!("<IsTruncated>{text}</IsTruncated>{rest}");
        for body in [token.to_owned(), says("True", token), says(" true\n", token), says("TRUE", token)] {
            assert_eq!(page(&body).unwrap().next.as_deref(), Some("t"), "{body}");
        }
        for body in [none.to_owned(), says("False", none), says("false", token), String::new()] {
            assert_eq!(page(&body).unwrap().next, None, "{body}");
        }
    }

    #[test]
    fn malformed_pages_are_refused_with_a_reason() {
        let long = "x".repeat(5000);
        let cases = [
            ("<IsTruncated>true</IsTruncated>", "listing goes on without a token"),
            ("<IsTruncated>1</IsTruncated>", "listing does not say whether it goes on"),
            ("<IsTruncated></IsTruncated>", "listing does not say whether it goes on"),
            ("<Contents><Key>a</Key></Contents>", "listing has an object without key or size"),
            ("<Contents><Size>1</Size></Contents>", "listing has an object without key or size"),
            ("<Contents><Key>a</Key><Size>-1</Size></Contents>", "listing has a bad size"),
            ("<Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>", "listing has a bad size"),
            (
                &format!("<Contents><ETag>{}</ETag></Contents>", "e".repeat(600)),
                "listing has an overlong version",
            ),
            ("<Contents><Key>&boom;</Key></Contents>", "answer has an unknown entity"),
            (&format!("<Prefix>{long}</Prefix>"), "answer has an overlong text"),
            ("<a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a>", "answer is nested too deep"),
            ("<Contents></Key>", "answer is not well-formed"),
        ];
        for (body, reason) in cases {
            assert_eq!(page(body), Err(reason), "{body}");
        }
        for (xml, reason) in [
            ("", "answer is cut short"),
            ("<html>", "answer is cut short"),
            ("<ListBucketResult><Contents>", "answer is cut short"),
            ("<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult/>", "answer has a document type"),
        ] {
            assert_eq!(parse(xml.as_bytes()), Err(reason), "{xml}");
        }
    }

    /// A page as a server writes it, with these keys.
    fn written(keys: &[Vec<u8>], token: Option<&str>) -> String {
        let mut xml =
            String::from("<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>");
        for (index, key) in keys.iter().enumerate() {
            let key = percent_encode(key, NON_ALPHANUMERIC);
            xml.push_str(&format!(
                "<Contents><Key>{key}</Key><Size>{index}</Size><ETag>&quot;{index}&quot;</ETag>\
                 <LastModified>1970-01-01T00:00:00.123Z</LastModified></Contents>"
            ));
        }
        if let Some(token) = token {
            let token = token.replace('&', "&amp;").replace('<', "&lt;");
            xml.push_str("<IsTruncated>true</IsTruncated>");
            xml.push_str(&format!("<NextContinuationToken>{token}</NextContinuationToken>"));
        }
        xml.push_str("</ListBucketResult>");
        xml
    }

    fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        collection::vec(collection::vec(any::<u8>(), 1..40), 0..6)
    }

    proptest! {
        #[test]
        fn any_keys_come_back_as_they_were(keys in keys(), token in option::of("[!-~]{1,20}")) {
            let page = parse(written(&keys, token.as_deref()).as_bytes()).unwrap();
            prop_assert_eq!(page.next, token);
            let wanted: Vec<_> = (0_u64..)
                .zip(keys)
                .map(|(size, key)| Listed { key, size, etag: Some(format!("\"{size}\"")), put_at: Some(0) })
                .collect();
            prop_assert_eq!(page.objects, wanted);
        }

        #[test]
        fn page_that_is_cut_short_is_never_a_page(keys in keys(), at in any::<sample::Index>()) {
            let xml = written(&keys, None);
            let cut = at.index(xml.len());
            prop_assert!(parse(&xml.as_bytes()[..cut]).is_err(), "{}", &xml[..cut]);
        }

        #[test]
        fn damaged_page_gives_no_more_than_it_has(
            keys in keys(),
            changes in collection::vec((any::<sample::Index>(), mutation()), 1..8),
        ) {
            let mut xml = written(&keys, Some("t")).into_bytes();
            for (at, (removed, added)) in changes {
                let start = at.index(xml.len() + 1);
                let end = (start + removed).min(xml.len());
                xml.splice(start..end, added);
            }
            if let Ok(page) = parse(&xml) {
                prop_assert!(page.objects.len() <= xml.len() / "<Contents></Contents>".len());
                let texts: usize = page.objects.iter().map(|object| object.key.len()).sum();
                prop_assert!(texts <= xml.len());
                prop_assert!(page.objects.iter().all(|object| object.key.len() <= xml::TEXT_MAX));
            }
        }

        #[test]
        fn bytes_that_are_no_page_do_no_harm(xml in collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&xml);
        }
    }

    /// How many bytes are replaced, and by what: mostly by pieces of XML.
    fn mutation() -> impl Strategy<Value = (usize, Vec<u8>)> {
        let pieces = sample::select(vec![
            "<",
            ">",
            "&",
            ";",
            "/",
            "<Contents>",
            "</Contents>",
            "<Key>",
            "</Key>",
            "<Key/>",
            "<![CDATA[",
            "]]>",
            "<!--",
            "-->",
            "&#x0;",
            "&#99999999;",
            "&amp;",
            "<?",
            "?>",
            "<Size>",
            "%",
            "%zz",
            "\u{202e}",
            "<ListBucketResult>",
            "</ListBucketResult>",
            "</ListBucketResult><ListBucketResult>",
        ]);
        let piece = prop_oneof![
            pieces.prop_map(|piece| piece.as_bytes().to_vec()),
            collection::vec(any::<u8>(), 0..4),
            any::<u8>().prop_map(|byte| vec![byte; 5000]),
        ];
        (0_usize..12, piece)
    }
}
