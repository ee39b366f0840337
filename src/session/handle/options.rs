//! The choices and limits of a [`SessionsConfig`](super::config::SessionsConfig).

/// What becomes of the dot at the start of an attachment's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dotfiles {
    /// The name gets a `_` in front, so that the file is seen in a listing: `.gitignore` is saved as `_.gitignore`.
    #[default]
    Show,
    /// The name keeps its dot. Only names that start with `.beneath-` do not: those are the host's own.
    Keep,
}

/// Which forms of base64 an attachment may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Base64 {
    /// The standard alphabet, padded, with no blanks or line ends.
    #[default]
    Strict,
    /// Also the alphabet for URLs, no or partial padding, blanks and line ends anywhere, and a `data:` URL that says `;base64`.
    /// The two alphabets may not be mixed. Whatever else is not base64 is refused as before.
    Lenient,
}

/// Which time counts as the age of a session; see [`Sessions::sweep`](crate::Sessions::sweep).
///
/// ```
/// use std::time::Duration;
/// use beneath::session::{SessionsConfig, SweepClock};
/// # use beneath::{Root, SessionId, Sessions, ambient_authority};
///
/// # let dir = tempfile::tempdir()?;
/// # let root = Root::open_ambient(dir.path(), ambient_authority())?;
/// let sessions = Sessions::new(root, SessionsConfig::default().with_sweep_clock(SweepClock::Wall));
/// # sessions.create(&SessionId::new("s"))?;
/// assert_eq!(sessions.sweep(Duration::from_secs(3600))?.kept, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SweepClock {
    /// The time that the host has watched the sessions while the machine was up. A wall clock that is wrong makes no session
    /// older.
    #[default]
    Watched,
    /// The wall clock as it is now, time without power included: for machines that are off most of the time, or after a
    /// long pause. A clock that is wrong removes sessions in use.
    Wall,
}

/// How much one message may bring, in either direction.
///
/// Deliveries with the same id are one message; see [`Inbox::deliver`](crate::session::Inbox::deliver).
///
/// ```
/// use beneath::session::MessageLimits;
///
/// let limits = MessageLimits::default().with_file_bytes(20 << 20).with_message_bytes(50 << 20).with_files(10);
/// assert_eq!(limits.file_bytes(), 20 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    file_bytes: u64,
    message_bytes: u64,
    files: u64,
}

impl Default for MessageLimits {
    /// 64 MiB a file, 256 MiB and 64 files a message.
    fn default() -> Self {
        Self { file_bytes: 64 << 20, message_bytes: 256 << 20, files: 64 }
    }
}

impl MessageLimits {
    /// Bounds one file.
    #[must_use]
    pub fn with_file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// Bounds all files of one message together.
    #[must_use]
    pub fn with_message_bytes(mut self, bytes: u64) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Bounds the number of files of one message.
    #[must_use]
    pub fn with_files(mut self, files: u64) -> Self {
        self.files = files;
        self
    }

    /// Most bytes of one file.
    #[must_use]
    pub fn file_bytes(self) -> u64 {
        self.file_bytes
    }

    /// Most bytes of one message.
    #[must_use]
    pub fn message_bytes(self) -> u64 {
        self.message_bytes
    }

    /// Most files of one message.
    #[must_use]
    pub fn files(self) -> u64 {
        self.files
    }
}
