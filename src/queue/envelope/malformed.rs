//! Why an envelope is refused.

/// Why an envelope is refused. Its [code](Self::code) is in the answer that the guest gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It is not JSON, not an object, or a member is missing, unknown, repeated or of another type.
    #[error("is not an envelope")]
    Form,
    /// It is nested deeper than the limit.
    #[error("is nested too deep")]
    Depth,
    /// It is of another version.
    #[error("is of an unknown version")]
    Version,
    /// Its id is not that of its file.
    #[error("its id is not that of its file")]
    Id,
    /// The method is not a token of at most 32 bytes.
    #[error("its method is not a token")]
    Method,
    /// The path does not begin with `/` or has a control character, or the query has anything but visible ASCII, or a `#`.
    #[error("has an invalid path or query")]
    Path,
    /// The status is not from 100 to 999.
    #[error("has an invalid status")]
    Status,
    /// A header has a name that is no token, or a value with a control character.
    #[error("has an invalid header")]
    Header,
    /// There are more headers, or bytes of them, than the limit.
    #[error("has too many headers")]
    Headers,
    /// The body is not base64, or is said to be in a file and is here too.
    #[error("has a body that does not match its encoding")]
    Body,
    /// The body is said to be in a file, and there is none, or none that may be read.
    #[error("its body is not there")]
    BodyFile,
    /// It could not be read: it has several names, or its mode forbids it.
    #[error("cannot be read")]
    Unreadable,
}

impl Malformed {
    /// A stable code, for programs.
    ///
    /// ```
    /// assert_eq!(beneath::queue::Malformed::Id.code(), "id");
    /// ```
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::Depth => "depth",
            Self::Version => "version",
            Self::Id => "id",
            Self::Method => "method",
            Self::Path => "path",
            Self::Status => "status",
            Self::Header => "header",
            Self::Headers => "headers",
            Self::Body => "body",
            Self::BodyFile => "body-file",
            Self::Unreadable => "unreadable",
        }
    }
}
