//! One error type for every layer.

mod errno;
mod escape;
mod kind;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use errno::meaning;
pub(crate) use escape::{escaped, escaped_whole};
pub use kind::ErrorKind;

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation that was refused or failed.
///
/// It has a [kind](Self::kind), the operation and the relative subject. Text that a guest chose is always
/// escaped, and no host path appears in it. The cause from the system, if there is one, is its
/// [`source`](std::error::Error::source).
///
/// Two errors are equal if kind, operation, subject and text are, and the errno behind them if there is one. With the feature
/// `serde` an error is serialised as its kind, operation, subject (what is not UTF-8 in it replaced) and message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}{}: {}", Subject(.subject.as_deref()), Reason(.kind, .detail.as_deref()))]
struct Inner {
    operation: &'static str,
    subject: Option<PathBuf>,
    kind: ErrorKind,
    detail: Option<Cow<'static, str>>,
    source: Option<Cause>,
}

/// What the system reported, shared by all copies of an error.
#[derive(Clone, Debug)]
struct Cause(Arc<io::Error>);

impl Deref for Cause {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        (self.raw_os_error(), self.kind()) == (other.raw_os_error(), other.kind())
    }
}

impl Eq for Cause {}

struct Subject<'a>(Option<&'a Path>);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, " {}", escaped(path.as_os_str().as_encoded_bytes())),
            None => Ok(()),
        }
    }
}

struct Reason<'a>(&'a ErrorKind, Option<&'a str>);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(detail) => f.write_str(detail),
            None => self.0.fmt(f),
        }
    }
}

impl Error {
    pub(crate) fn new(operation: &'static str, subject: impl AsRef<Path>, kind: ErrorKind) -> Self {
        Self(Box::new(Inner {
            operation,
            subject: Some(subject.as_ref().to_path_buf()),
            kind,
            detail: None,
            source: None,
        }))
    }

    /// An error whose subject is a host path, which is therefore left out.
    pub(crate) fn without_subject(operation: &'static str, errno: Errno) -> Self {
        let (kind, detail) = meaning(errno);
        let detail = detail.map(Cow::Borrowed);
        Self(Box::new(Inner {
            operation,
            subject: None,
            kind,
            detail,
            source: Some(Cause(Arc::new(errno.into()))),
        }))
    }

    pub(crate) fn from_errno(operation: &'static str, subject: impl AsRef<Path>, errno: Errno) -> Self {
        let mut error = Self::without_subject(operation, errno);
        error.0.subject = Some(subject.as_ref().to_path_buf());
        error
    }

    /// The error that a reader or writer of this crate put into `error`; what others report is `Io`.
    pub(crate) fn from_io(operation: &'static str, subject: impl AsRef<Path>, error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(other) => Self::new(operation, subject, ErrorKind::Io).with_source(other),
        }
    }

    /// Says more than the kind does; replaces the kind's text in the display.
    pub(crate) fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    pub(crate) fn with_source(mut self, source: io::Error) -> Self {
        self.0.source = Some(Cause(Arc::new(source)));
        self
    }

    /// The same failure, reported of another subject.
    pub(crate) fn about(mut self, subject: impl AsRef<Path>) -> Self {
        self.0.subject = Some(subject.as_ref().to_path_buf());
        self
    }

    /// The same failure, as that of another operation.
    pub(crate) fn again(&self, operation: &'static str) -> Self {
        let mut error = self.clone();
        error.0.operation = operation;
        error
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether this may be different next time without the guest's doing anything: the host ran out of descriptors,
    /// memory or space, a device failed, somebody holds the entry. What the guest left and what a limit refuses is
    /// the same next time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// assert!(!root.read_contained("missing", 1).unwrap_err().is_transient());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.kind() {
            ErrorKind::Busy
            | ErrorKind::NoSpace
            | ErrorKind::ReadOnly
            | ErrorKind::Unsupported
            | ErrorKind::Io => true,
            // A limit of this crate has no source; the system's own limit has one.
            ErrorKind::TooMany => self.0.source.is_some(),
            _ => false,
        }
    }

    /// The operation that failed, as a verb: `"read"`, `"write"`, `"remove"`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// What it was about, relative to the root; not escaped.
    #[must_use]
    pub fn subject(&self) -> Option<&Path> {
        self.0.subject.as_deref()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind().into(), error)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Error {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        let mut fields = serializer.serialize_struct("Error", 4)?;
        fields.serialize_field("kind", &self.kind())?;
        fields.serialize_field("operation", self.operation())?;
        fields.serialize_field("subject", &self.subject().map(Path::to_string_lossy))?;
        fields.serialize_field("message", &self.to_string())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_operation_subject_and_reason() {
        let error = Error::new("write", "a.txt", ErrorKind::AlreadyExists);
        assert_eq!(error.to_string(), r#"write "a.txt": name is already taken"#);
    }

    #[test]
    fn what_the_guest_left_is_the_same_next_time_and_what_the_host_lacks_is_not() {
        let hosts =
            [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::NOSPC, Errno::BUSY, Errno::STALE];
        for errno in hosts {
            assert!(Error::from_errno("read", "x", errno).is_transient(), "{errno}");
        }
        let guests = [Errno::LOOP, Errno::NXIO, Errno::NOENT, Errno::NOTDIR, Errno::ACCESS, Errno::EXIST];
        for errno in guests {
            assert!(!Error::from_errno("read", "x", errno).is_transient(), "{errno}");
        }
        for limit in [ErrorKind::TooMany, ErrorKind::TooLarge, ErrorKind::HardLinked, ErrorKind::InvalidName]
        {
            assert!(!Error::new("read", "x", limit).is_transient(), "{limit:?}");
        }
    }

    #[test]
    fn an_errno_is_not_explained_by_words_that_mislead() {
        let cases = [
            (Errno::ROFS, "the file system is read-only", io::ErrorKind::ReadOnlyFilesystem),
            (Errno::NOMEM, "out of memory", io::ErrorKind::Other),
            (Errno::MFILE, "no descriptor is left", io::ErrorKind::Other),
            (Errno::NFILE, "no descriptor is left", io::ErrorKind::Other),
            (
                Errno::OVERFLOW,
                "has an owner, size or time that cannot be represented here",
                io::ErrorKind::Unsupported,
            ),
            (Errno::INVAL, "the kernel or file system does not take the call", io::ErrorKind::Unsupported),
        ];
        for (errno, words, kind) in cases {
            let error = Error::from_errno("read", "x", errno);
            assert_eq!(error.to_string(), format!("read \"x\": {words}"));
            assert_eq!(Error::without_subject("open root", errno).to_string(), format!("open root: {words}"));
            assert_eq!(io::Error::from(error).kind(), kind, "{errno}");
        }
    }

    #[test]
    fn error_has_operation_kind_and_subject() {
        let error = Error::from_errno("read", "a/b", Errno::LOOP).with_kind(ErrorKind::Escape).about("c");
        assert_eq!((error.operation(), error.kind()), ("read", ErrorKind::Escape));
        assert_eq!(error.subject(), Some(Path::new("c")));
        assert_eq!(error.to_string(), r#"read "c": leads out of the root"#);
        let error = Error::without_subject("open root", Errno::NOENT);
        assert_eq!((error.subject(), error.to_string().as_str()), (None, "open root: not found"));
    }

    #[test]
    fn io_error_keeps_kind_and_source() {
        let error = Error::from_errno("read", "x", Errno::NOENT);
        let io = io::Error::from(error);
        assert_eq!(io.kind(), io::ErrorKind::NotFound);
        let inner = io.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).unwrap();
        let source = std::error::Error::source(inner).unwrap();
        assert_eq!(
            source.downcast_ref::<io::Error>().unwrap().raw_os_error(),
            Some(Errno::NOENT.raw_os_error())
        );
    }

    #[test]
    fn a_copy_is_equal_and_keeps_the_source() {
        let error = Error::from_errno("read", "x", Errno::NOENT);
        let copy = error.clone();
        assert_eq!(copy, error);
        let source = std::error::Error::source(&copy).and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(Errno::NOENT.raw_os_error()));
        assert_ne!(error, Error::from_errno("read", "x", Errno::LOOP).with_kind(ErrorKind::NotFound));
        assert_ne!(error, Error::new("read", "x", ErrorKind::NotFound));
        assert_ne!(error, error.clone().about("y"));
    }
}
