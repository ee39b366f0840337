//! Links to objects, for people who have no credentials.
//!
//! Problem: what a guest has written is opened by a browser. A page that is shown on the store's own address can act there, a name
//! in a header can end the header, and a link that lasts for years is a credential that nobody remembers.
//!
//! Defence: a link for a download asks the store to send the object as an attachment, with the name encoded as RFC 6266 says. No
//! link lasts longer than seven days.
//!
//! What remains: whoever has the link can read the object until it ends. A link cannot be taken back, except by changing the
//! credentials that have signed it.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use super::Artifacts;
use crate::error::{Error, ErrorKind, Result};
use crate::name::GuestPath;

impl Artifacts {
    /// The longest that a link may last: seven days, the most that S3 and GCS take.
    pub const LINK_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// A URL that lets whoever has it read the object at `path` until `valid` has passed.
    ///
    /// A browser shows it as what its content type says. For what a guest has written prefer
    /// [`signed_download`](Self::signed_download).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the source has no signer; [`ErrorKind::TooLarge`] if `valid` is longer than
    /// [`LINK_MAX`](Self::LINK_MAX).
    pub async fn signed_url(&self, path: &GuestPath, valid: Duration) -> Result<String> {
        self.sign(path, valid, None).await
    }

    /// As [`signed_url`](Self::signed_url), with a URL that makes a browser save the object under the name of the file, and never
    /// show it.
    ///
    /// # Errors
    /// As [`signed_url`](Self::signed_url); also [`ErrorKind::Unsupported`] on Azure, whose signer cannot ask for it.
    pub async fn signed_download(&self, path: &GuestPath, valid: Duration) -> Result<String> {
        let name = path.components().last().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        self.sign(path, valid, Some(&attachment(&name))).await
    }

    async fn sign(&self, path: &GuestPath, valid: Duration, disposition: Option<&str>) -> Result<String> {
        if valid > Self::LINK_MAX {
            return Err(
                Error::new("sign", path, ErrorKind::TooLarge).with_detail("a link lasts at most seven days")
            );
        }
        let (key, retry) = (self.client.prefix.key(path)?, self.client.retry);
        // The credentials may be a service's to give, which can be silent.
        let calls = retry.about(&self.client.progress, path).within(retry.silence());
        calls.run(|_| self.client.source.backend().sign(&key, valid, disposition)).await
    }
}

/// The value of `Content-Disposition` for a file of this name: for old browsers in ASCII, and for all others in full.
fn attachment(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let plain = |char: char| match char {
        '"' | '\\' | '%' | '/' => '_',
        char if char.is_ascii_graphic() || char == ' ' => char,
        _ => '_',
    };
    let ascii: String = name.chars().map(plain).collect();
    let mut full = String::new();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            true => full.push(char::from(byte)),
            false => full.push_str(&format!("%{byte:02X}")),
        }
    }
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{full}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_cannot_end_its_header() {
        let cases: [(&[u8], &str); 4] = [
            (b"report.txt", "attachment; filename=\"report.txt\"; filename*=UTF-8''report.txt"),
            (b"a\"; x=\"b", "attachment; filename=\"a_; x=_b\"; filename*=UTF-8''a%22%3B%20x%3D%22b"),
            (
                "caf\u{e9} 1%.pdf".as_bytes(),
                "attachment; filename=\"caf_ 1_.pdf\"; filename*=UTF-8''caf%C3%A9%201%25.pdf",
            ),
            (
                b"a\r\nSet-Cookie: x\xff",
                "attachment; filename=\"a__Set-Cookie: x_\"; filename*=UTF-8''a%0D%0ASet-Cookie%3A%20x%EF%BF%BD",
            ),
        ];
        for (name, value) in cases {
            assert_eq!(attachment(name), value);
            assert!(attachment(name).bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
        }
    }
}
