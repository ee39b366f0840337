//! One page of a listing as Azure writes it.
//!
//! What remains: a name with characters that XML cannot hold comes encoded, and says so by an attribute; one from a server that does
//! not say so is another name, and is not found when it is fetched.

use percent_encoding::percent_decode_str;

use crate::artifacts::store::bounded::VERSION_MAX;
use crate::artifacts::store::object::{Listed, quoted};
use crate::artifacts::store::raw::{Malformed, Page, read_xml_with};

#[derive(Default)]
struct Blob {
    key: Option<Vec<u8>>,
    size: Option<u64>,
    etag: Option<String>,
    put_at: Option<i64>,
    /// Where directories are more than parts of names, they are listed like blobs.
    is_directory: bool,
}

/// Reads `EnumerationResults`.
pub(super) fn parse(bytes: &[u8]) -> Result<Page, Malformed> {
    let (mut blob, mut objects, mut next, mut whole) = (Blob::default(), Vec::new(), None, false);
    read_xml_with(bytes, "Encoded", |names, text, encoded| {
        match names {
            ["EnumerationResults", "NextMarker"] => next = Some(text).filter(|token| !token.is_empty()),
            ["EnumerationResults", "Blobs", "Blob", "Name"] => {
                blob.key = Some(match encoded {
                    Some("true") => percent_decode_str(&text).collect(),
                    _ => text.into_bytes(),
                });
            }
            ["EnumerationResults", "Blobs", "Blob", "Properties", name] => match *name {
                "Content-Length" => {
                    blob.size = Some(text.trim().parse().map_err(|_| "listing has a bad size")?);
                }
                "Etag" | "ETag" if text.len() > VERSION_MAX => return Err("listing has an overlong version"),
                "Etag" | "ETag" => blob.etag = Some(quoted(text)),
                "Last-Modified" => {
                    blob.put_at =
                        chrono::DateTime::parse_from_rfc2822(text.trim()).ok().map(|time| time.timestamp());
                }
                "ResourceType" => blob.is_directory = text == "directory",
                _ => {}
            },
            ["EnumerationResults", "Blobs", "Blob"] => {
                let Blob { key, size, etag, put_at, is_directory } = std::mem::take(&mut blob);
                match (key, size) {
                    (Some(_), _) if is_directory => {}
                    (Some(key), Some(size)) => objects.push(Listed { key, size, etag, put_at }),
                    _ => return Err("listing has an object without key or size"),
                }
            }
            ["EnumerationResults"] => whole = true,
            _ => {}
        }
        Ok(())
    })?;
    match whole {
        true => Ok(Page { objects, next }),
        false => Err("answer is no listing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(body: &str) -> Result<Page, Malformed> {
        let top =
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ContainerName=\"c\"><Prefix/>";
        parse(format!("{top}<Blobs>{body}</EnumerationResults>").as_bytes())
    }

    fn blob(name: &str, properties: &str) -> String {
        format!("<Blob><Name{name}</Name><Properties>{properties}</Properties><OrMetadata/></Blob>")
    }

    #[test]
    fn keys_sizes_and_versions_are_read_and_directories_left_out() {
        let size = "<Content-Length>3</Content-Length>";
        let said = "<Last-Modified>Thu, 01 Jan 1970 00:00:07 GMT</Last-Modified><Etag>0x8D</Etag>";
        let blobs = [
            blob(">a//b", &format!("{size}{said}<BlobType>BlockBlob</BlobType>")),
            blob(">dir/", "<Content-Length>0</Content-Length>"),
            blob(" Encoded=\"true\">x%EF%BF%BEy%25", size),
            blob(">x%25&amp;", size),
            blob(">d", &format!("{size}<ResourceType>directory</ResourceType>")),
        ];
        let page = page(&format!("{}</Blobs><NextMarker>m</NextMarker>", blobs.concat())).unwrap();
        let keys: Vec<_> = page.objects.iter().map(|object| String::from_utf8_lossy(&object.key)).collect();
        assert_eq!(keys, ["a//b", "dir/", "x\u{fffe}y%", "x%25&"]);
        let first = &page.objects[0];
        assert_eq!((first.size, first.etag.as_deref(), first.put_at), (3, Some("\"0x8D\""), Some(7)));
        assert_eq!(page.next.as_deref(), Some("m"));
    }

    #[test]
    fn page_without_a_marker_is_the_last_and_one_that_is_cut_short_is_none() {
        for end in ["<NextMarker/>", "<NextMarker></NextMarker>", ""] {
            assert_eq!(page(&format!("</Blobs>{end}")).unwrap(), Page::default());
        }
        let whole = format!("<EnumerationResults><Blobs>{}</Blobs></EnumerationResults>", blob(">a", ""));
        for (xml, reason) in [
            (&whole[..40], "answer is cut short"),
            (whole.as_str(), "listing has an object without key or size"),
            ("<html></html>", "answer is no listing"),
            ("<ListBucketResult></ListBucketResult>", "answer is no listing"),
        ] {
            assert_eq!(parse(xml.as_bytes()), Err(reason), "{xml}");
        }
        let size = format!("<Content-Length>-1</Content-Length><Etag>{}</Etag>", "e".repeat(600));
        assert_eq!(page(&format!("{}</Blobs>", blob(">a", &size))), Err("listing has a bad size"));
    }
}
