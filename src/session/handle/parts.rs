//! The directories of a session, by name.

use std::path::Path;

use crate::error::{ErrorKind, Result};
use crate::root::Root;
use crate::session::event;

pub(in crate::session) const GUEST: &str = "guest";
pub(in crate::session) const HOST: &str = "host";

/// Host-only: claimed messages, by ticket.
pub(in crate::session) const CLAIMED: &str = "claimed";
/// Host-only: what is being removed.
pub(in crate::session) const TRASH: &str = "trash";
/// Host-only: what must survive a crash.
pub(in crate::session) const STATE: &str = "state";
/// Host-only: what is being put together.
pub(in crate::session) const STAGING: &str = "staging";

pub(in crate::session) const HOST_PARTS: [&str; 4] = [STAGING, CLAIMED, TRASH, STATE];

/// A directory of the guest's side that the host works in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Part {
    /// Where the host delivers.
    Inbox,
    /// Where the host collects.
    Outbox,
    /// Where the guest works.
    Workspace,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Inbox, Self::Outbox, Self::Workspace];

    /// The name of the directory.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Outbox => "outbox",
            Self::Workspace => "workspace",
        }
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
