//! One error type for every layer, and the one table from errno to kind.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in terms of what a caller would do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ErrorKind {
    /// The path leads out of the root.
    Escape,
    /// A symbolic link stands where the policy allows none.
    Symlink,
    /// The entry is a directory, FIFO, socket or device where a regular file is meant.
    NotRegular,
    /// The file has more than one name, so it may also live outside the root.
    HardLinked,
    /// A component that must be a directory is something else.
    NotDirectory,
    /// The name is taken.
    AlreadyExists,
    /// There is no such entry.
    NotFound,
    /// More bytes than the limit allows.
    TooLarge,
    /// More entries, levels or attempts than the limit allows, or more descriptors or memory than the system gives.
    TooMany,
    /// The text breaks a name rule.
    InvalidName,
    /// The path has a form that is never resolved.
    InvalidPath,
    /// The content is not what it was said to be: not base64, not of the size, not of the form.
    InvalidData,
    /// The path crosses a mount, or the two ends are on different file systems.
    CrossDevice,
    /// The kernel denies permission.
    Denied,
    /// No space, quota, or inodes are left.
    NoSpace,
    /// The file system is mounted read-only, or has become so after an error of its device.
    ReadOnly,
    /// Somebody holds the entry right now, or keeps changing it: try again later.
    Busy,
    /// The kernel or file system lacks what this needs.
    Unsupported,
    /// Anything else the system reports.
    Io,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Escape => "leads out of the root",
            Self::Symlink => "is a symbolic link",
            Self::NotRegular => "is not a regular file",
            Self::HardLinked => "has more than one name",
            Self::NotDirectory => "is not a directory",
            Self::AlreadyExists => "name is already taken",
            Self::NotFound => "not found",
            Self::TooLarge => "is larger than the limit",
            Self::TooMany => "more than the limit",
            Self::InvalidName => "invalid name",
            Self::InvalidPath => "invalid path",
            Self::InvalidData => "invalid content",
            Self::CrossDevice => "is on another mount",
            Self::Denied => "permission denied",
            Self::NoSpace => "no space left",
            Self::ReadOnly => "the file system is read-only",
            Self::Busy => "is busy",
            Self::Unsupported => "is not supported here",
            Self::Io => "input/output error",
        })
    }
}

impl ErrorKind {
    /// The kind an errno means when nothing more is known about the call.
    pub(crate) fn of(errno: Errno) -> Self {
        meaning(errno).0
    }
}

/// What an errno means when nothing more is known about the call, and how to say it if the kind's own words mislead.
fn meaning(errno: Errno) -> (ErrorKind, Option<&'static str>) {
    use ErrorKind as Kind;
    match errno {
        Errno::LOOP => (Kind::Symlink, None),
        Errno::ISDIR | Errno::NXIO | Errno::NODEV => (Kind::NotRegular, None),
        Errno::NOTDIR => (Kind::NotDirectory, None),
        Errno::EXIST | Errno::NOTEMPTY => (Kind::AlreadyExists, None),
        Errno::NOENT => (Kind::NotFound, None),
        Errno::FBIG => (Kind::TooLarge, None),
        Errno::MLINK => {
            (Kind::TooMany, Some("has as many names or sub-directories as the file system takes"))
        }
        Errno::MFILE | Errno::NFILE => (Kind::TooMany, Some("no descriptor is left")),
        Errno::NOMEM => (Kind::TooMany, Some("out of memory")),
        Errno::NAMETOOLONG => (Kind::InvalidPath, None),
        Errno::XDEV => (Kind::CrossDevice, None),
        Errno::ACCESS | Errno::PERM => (Kind::Denied, None),
        Errno::NOSPC | Errno::DQUOT => (Kind::NoSpace, None),
        Errno::ROFS => (Kind::ReadOnly, None),
        Errno::AGAIN | Errno::BUSY | Errno::TXTBSY => (Kind::Busy, None),
        Errno::NOSYS | Errno::OPNOTSUPP => (Kind::Unsupported, None),
        Errno::INVAL => (Kind::Unsupported, Some("the kernel or file system does not take the call")),
        // Say, an owner that is not mapped on this mount.
        Errno::OVERFLOW => {
            (Kind::Unsupported, Some("has an owner, size or time that cannot be represented here"))
        }
        _ => (Kind::Io, None),
    }
}

/// An operation that was refused or failed.
///
/// It tells the [kind](Self::kind), the operation and the relative subject. Text that a guest chose is always
/// escaped, and no host path appears in it. The cause from the system, if there is one, is its
/// [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Inner>);

#[derive(Debug, thiserror::Error)]
#[error("{operation}{}: {}", Subject(.subject.as_deref()), Reason(.kind, .detail.as_deref()))]
struct Inner {
    operation: &'static str,
    subject: Option<PathBuf>,
    kind: ErrorKind,
    detail: Option<Cow<'static, str>>,
    source: Option<io::Error>,
}

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
        Self(Box::new(Inner { operation, subject: None, kind, detail, source: Some(errno.into()) }))
    }

    pub(crate) fn from_errno(operation: &'static str, subject: impl AsRef<Path>, errno: Errno) -> Self {
        let mut error = Self::without_subject(operation, errno);
        error.0.subject = Some(subject.as_ref().to_path_buf());
        error
    }

    /// Says more than the kind does; replaces the kind's text in the display.
    pub(crate) fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    pub(crate) fn with_source(mut self, source: io::Error) -> Self {
        self.0.source = Some(source);
        self
    }

    /// The same failure, told of another subject.
    pub(crate) fn about(mut self, subject: impl AsRef<Path>) -> Self {
        self.0.subject = Some(subject.as_ref().to_path_buf());
        self
    }

    /// The same failure once more, as that of another operation.
    #[cfg(feature = "session")]
    pub(crate) fn again(&self, operation: &'static str) -> Self {
        let source = self.0.source.as_ref();
        Self(Box::new(Inner {
            operation,
            subject: self.0.subject.clone(),
            kind: self.0.kind,
            detail: self.0.detail.clone(),
            source: source.map(|source| match source.raw_os_error() {
                Some(errno) => io::Error::from_raw_os_error(errno),
                None => source.kind().into(),
            }),
        }))
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
        let kind = match error.kind() {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            ErrorKind::Escape | ErrorKind::Symlink | ErrorKind::HardLinked | ErrorKind::Denied => {
                io::ErrorKind::PermissionDenied
            }
            ErrorKind::NotDirectory => io::ErrorKind::NotADirectory,
            ErrorKind::InvalidName | ErrorKind::InvalidPath | ErrorKind::NotRegular => {
                io::ErrorKind::InvalidInput
            }
            ErrorKind::InvalidData => io::ErrorKind::InvalidData,
            ErrorKind::TooLarge => io::ErrorKind::FileTooLarge,
            ErrorKind::CrossDevice => io::ErrorKind::CrossesDevices,
            ErrorKind::NoSpace => io::ErrorKind::StorageFull,
            ErrorKind::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            ErrorKind::Busy => io::ErrorKind::ResourceBusy,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::TooMany | ErrorKind::Io => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// Longest run of untrusted text that an error message repeats.
const SHOWN: usize = 160;

/// Renders untrusted bytes as one quoted, printable line of bounded length.
pub(crate) fn escaped(raw: &[u8]) -> Escaped<'_> {
    Escaped(raw)
}

pub(crate) struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let mut room = SHOWN;
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars().take(room) {
                room -= 1;
                match character {
                    '"' | '\\' => write!(f, "\\{character}")?,
                    ' '..='~' => f.write_char(character)?,
                    // Fillers and blanks are letters that show nothing.
                    '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{13441}' | '\u{13442}' => {
                        write!(f, "{}", character.escape_unicode())?
                    }
                    letter if letter.is_alphanumeric() => f.write_char(letter)?,
                    hidden => write!(f, "{}", hidden.escape_unicode())?,
                }
            }
            for byte in chunk.invalid().iter().take(room) {
                room -= 1;
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_str(if room == 0 { "\"…" } else { "\"" })
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
    fn display_escapes_what_could_deceive_a_reader() {
        let cases: [(&[u8], &str); 6] = [
            (b"a\nb", r#""a\u{a}b""#),
            (b"say \"hi\"", r#""say \"hi\"""#),
            (b"\xff\xfe", r#""\xff\xfe""#),
            ("photo\u{202e}gnp".as_bytes(), r#""photo\u{202e}gnp""#),
            ("\u{3164}".as_bytes(), r#""\u{3164}""#),
            ("報告é".as_bytes(), r#""報告é""#),
        ];
        for (raw, shown) in cases {
            assert_eq!(escaped(raw).to_string(), shown, "{raw:?}");
        }
    }

    #[test]
    fn display_is_bounded_whatever_the_subject() {
        assert!(escaped(&[b'x'; 100_000]).to_string().len() < SHOWN + 8);
        for raw in [vec![0xff; 100_000], b"x\xff".repeat(50_000), b"\xffxx".repeat(50_000)] {
            let shown = escaped(&raw).to_string();
            assert!(shown.len() < SHOWN * 4 + 8, "{shown}");
            assert!(shown.ends_with("\"…"), "what was cut off is said: {shown}");
        }
    }

    #[test]
    fn every_errno_that_a_caller_can_act_on_has_its_kind() {
        let cases: [(ErrorKind, &[Errno]); 14] = [
            (ErrorKind::Symlink, &[Errno::LOOP]),
            (ErrorKind::NotRegular, &[Errno::ISDIR, Errno::NXIO, Errno::NODEV]),
            (ErrorKind::NotDirectory, &[Errno::NOTDIR]),
            (ErrorKind::AlreadyExists, &[Errno::EXIST, Errno::NOTEMPTY]),
            (ErrorKind::NotFound, &[Errno::NOENT]),
            (ErrorKind::TooLarge, &[Errno::FBIG]),
            (ErrorKind::TooMany, &[Errno::MFILE, Errno::NFILE, Errno::MLINK, Errno::NOMEM]),
            (ErrorKind::InvalidPath, &[Errno::NAMETOOLONG]),
            (ErrorKind::CrossDevice, &[Errno::XDEV]),
            (ErrorKind::Denied, &[Errno::ACCESS, Errno::PERM]),
            (ErrorKind::NoSpace, &[Errno::NOSPC, Errno::DQUOT]),
            (ErrorKind::ReadOnly, &[Errno::ROFS]),
            (ErrorKind::Busy, &[Errno::AGAIN, Errno::BUSY, Errno::TXTBSY]),
            (ErrorKind::Unsupported, &[Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL, Errno::OVERFLOW]),
        ];
        for (kind, errnos) in cases {
            for errno in errnos {
                assert_eq!(ErrorKind::of(*errno), kind, "{errno}");
            }
        }
        assert_eq!(ErrorKind::of(Errno::IO), ErrorKind::Io);
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
    fn error_tells_operation_kind_and_subject() {
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
}
