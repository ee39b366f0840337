//! Where answers go.

use rusqlite::{Connection, OptionalExtension as _, Row};

/// An address outside: the kind of channel, the place on it, and the thread there.
///
/// ```
/// let routing = beneath::mailbox::Routing::default().with_channel("chat").with_platform("room-7");
/// assert_eq!(routing.thread(), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Routing {
    pub(super) channel: Option<String>,
    pub(super) platform: Option<String>,
    pub(super) thread: Option<String>,
}

impl Routing {
    /// Sets the kind of channel.
    #[must_use]
    pub fn with_channel(mut self, channel: impl Into<String>) -> Self {
        self.channel = Some(channel.into());
        self
    }

    /// Sets the place on the channel.
    #[must_use]
    pub fn with_platform(mut self, platform: impl Into<String>) -> Self {
        self.platform = Some(platform.into());
        self
    }

    /// Sets the thread.
    #[must_use]
    pub fn with_thread(mut self, thread: impl Into<String>) -> Self {
        self.thread = Some(thread.into());
        self
    }

    /// The kind of channel.
    #[must_use]
    pub fn channel(&self) -> Option<&str> {
        self.channel.as_deref()
    }

    /// The place on the channel.
    #[must_use]
    pub fn platform(&self) -> Option<&str> {
        self.platform.as_deref()
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> Option<&str> {
        self.thread.as_deref()
    }

    /// The three columns from `first` on.
    pub(super) fn of(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        Ok(Self { channel: row.get(first)?, platform: row.get(first + 1)?, thread: row.get(first + 2)? })
    }
}

pub(super) fn read(connection: &Connection) -> rusqlite::Result<Option<Routing>> {
    let sql = "SELECT channel, platform, thread FROM routing";
    connection.query_row(sql, (), |row| Routing::of(row, 0)).optional()
}

/// Gives the guest the routing that the host has. Whoever calls this has the right to write `inbound`: of two hosts the one that
/// copies last then copies what was set last.
pub(super) fn copy(mail: &Connection, inbound: &Connection) -> rusqlite::Result<()> {
    match read(mail)? {
        Some(wanted) if read(inbound)?.as_ref() != Some(&wanted) => write(inbound, &wanted),
        _ => Ok(()),
    }
}

pub(super) fn write(connection: &Connection, routing: &Routing) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO routing (only, channel, platform, thread) VALUES (1, ?1, ?2, ?3)";
    connection.execute(sql, (&routing.channel, &routing.platform, &routing.thread)).map(drop)
}
