//! The directories of a session, by name.

use std::path::Path;

use crate::error::{ErrorKind, Result};
use crate::name::GuestPath;
use crate::root::Root;
use crate::session::event;

pub(in crate::session) const GUEST: &str = "guest";
pub(in crate::session) const HOST: &str = "host";
pub(in crate::session) const SHARE: &str = "share";

/// Host-only: claimed messages, by ticket.
pub(in crate::session) const CLAIMED: &str = "claimed";
/// Host-only: what is being removed.
pub(in crate::session) const TRASH: &str = "trash";
/// Host-only: what must survive a crash.
pub(in crate::session) const STATE: &str = "state";
/// Host-only: what is being put together.
pub(in crate::session) const STAGING: &str = "staging";

/// Host-only: requests that were claimed.
pub(in crate::session) const QUEUE: &str = "queue";

pub(in crate::session) const HOST_PARTS: [&str; 4] = [STAGING, CLAIMED, TRASH, STATE];

/// A directory of the guest's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Part {
    /// Where the host delivers.
    Inbox,
    /// Where the host collects.
    Outbox,
    /// Where the guest works.
    Workspace,
    /// The guest's directory itself, for what is in none of the others.
    Guest,
}

impl Part {
    /// Those that the host works in, which are entries of the guest's directory.
    pub const ALL: [Self; 3] = [Self::Inbox, Self::Outbox, Self::Workspace];

    /// The name of the directory; `.` for the guest's directory itself.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Outbox => "outbox",
            Self::Workspace => "workspace",
            Self::Guest => ".",
        }
    }

    /// The path of what is at `path` in this part, from the guest's directory.
    ///
    /// # Errors
    /// [`InvalidPath`](ErrorKind::InvalidPath) if it is longer than 4095 bytes.
    ///
    /// ```
    /// use beneath::{GuestPath, session::Part};
    ///
    /// let path = GuestPath::new("42/a.txt")?;
    /// assert_eq!(Part::Inbox.path(&path)?, GuestPath::new("inbox/42/a.txt")?);
    /// assert_eq!(Part::Guest.path(&path)?, path);
    /// # Ok::<(), beneath::Error>(())
    /// ```
    pub fn path(self, path: &GuestPath) -> Result<GuestPath> {
        GuestPath::new(self.name())?.join(path)
    }

    /// The part that `path`, from the guest's directory, is in, and its path there.
    pub(super) fn of(path: GuestPath) -> (Self, GuestPath) {
        let within = |part: Self| Some((part, path.strip_prefix(&GuestPath::new(part.name()).ok()?)?));
        Self::ALL.into_iter().find_map(within).unwrap_or((Self::Guest, path))
    }
}

/// One thing for each part that the host works in.
///
/// Its roots are the directories of a session that are apart from each other, for [`Session::from_places`]; its mount points are where
/// the guest sees them, for [`SessionsConfig::with_places`].
///
/// [`Session::from_places`]: crate::Session::from_places
/// [`SessionsConfig::with_places`]: crate::SessionsConfig::with_places
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<T> {
    /// That of the inbox.
    pub inbox: T,
    /// That of the outbox.
    pub outbox: T,
    /// That of the workspace.
    pub workspace: T,
}

impl<T> Parts<T> {
    /// That of `part`; none for the guest's directory itself.
    ///
    /// ```
    /// use beneath::session::{Part, Parts};
    ///
    /// let parts = Parts { inbox: 1, outbox: 2, workspace: 3 };
    /// assert_eq!((parts.get(Part::Outbox), parts.get(Part::Guest)), (Some(&2), None));
    /// ```
    #[must_use]
    pub fn get(&self, part: Part) -> Option<&T> {
        match part {
            Part::Inbox => Some(&self.inbox),
            Part::Outbox => Some(&self.outbox),
            Part::Workspace => Some(&self.workspace),
            Part::Guest => None,
        }
    }

    pub(in crate::session) fn map<U>(self, mut change: impl FnMut(T) -> U) -> Parts<U> {
        let Self { inbox, outbox, workspace } = self;
        Parts { inbox: change(inbox), outbox: change(outbox), workspace: change(workspace) }
    }

    /// What `make` gives for each part.
    pub(in crate::session) fn try_from_fn<E>(mut make: impl FnMut(Part) -> Result<T, E>) -> Result<Self, E> {
        Ok(Self { inbox: make(Part::Inbox)?, outbox: make(Part::Outbox)?, workspace: make(Part::Workspace)? })
    }
}

impl AsRef<Path> for Part {
    fn as_ref(&self) -> &Path {
        Path::new(self.name())
    }
}

/// Makes what the host's side needs.
pub(in crate::session) fn ensure_host(host: &Root) -> Result<()> {
    HOST_PARTS.iter().try_for_each(|part| host.ensure_dir(part).map(drop))
}

/// Makes what the guest's side needs, if nothing else is there.
pub(in crate::session) fn ensure_guest(guest: &Root) -> Result<()> {
    for part in Part::ALL {
        match guest.ensure_dir(part) {
            Ok(_) => {}
            // The guest has replaced it. Each use of the part is refused, and the session can still be opened and repaired.
            Err(error) if matches!(error.kind(), ErrorKind::Symlink | ErrorKind::NotDirectory) => {
                event::refused("open session", &error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
