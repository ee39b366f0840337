//! What the host keeps of a session: where answers go, and whether a guest runs.

use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _};

use super::handle::Mailbox;
use super::retries::{from_millis, to_millis};
use super::routing::{self, Routing};
use super::sqlite::{INBOUND, MAIL, failed, in_transaction};
use crate::error::Result;

/// Whether a guest runs, as the host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum GuestStatus {
    /// It works.
    Running,
    /// It waits for messages.
    Idle,
    /// There is none.
    Stopped,
}

impl GuestStatus {
    const ALL: [Self; 3] = [Self::Running, Self::Idle, Self::Stopped];

    const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
        }
    }
}

impl Mailbox {
    /// Sets where answers go. The guest finds it in the table `routing` of `inbound.db`. The last call counts.
    ///
    /// The host's own copy is the one that [`routing`](Self::routing) returns; no guest can change it.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the session was removed, [`Busy`](crate::ErrorKind::Busy), [`NoSpace`](crate::ErrorKind::NoSpace),
    /// and the kinds of every resolution. If the guest's copy cannot be written, a later [`take`](Self::take) writes it.
    ///
    /// ```
    /// # use beneath::{MountPoint, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # let dir = tempfile::tempdir()?;
    /// # let root = Root::open_ambient(dir.path(), ambient_authority())?;
    /// # let config = SessionsConfig::default().with_share(MountPoint::new("/share")?);
    /// # let (session, _) = Sessions::new(root, config).create(&SessionId::new("s"))?;
    /// use beneath::mailbox::{Mailbox, Routing};
    ///
    /// let mailbox = Mailbox::open(&session)?;
    /// assert_eq!(mailbox.routing()?, None);
    /// let routing = Routing::default().with_channel("chat").with_thread("t-1");
    /// mailbox.set_routing(&routing)?;
    /// assert_eq!(mailbox.routing()?, Some(routing));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_routing(&self, routing: &Routing) -> Result<()> {
        self.alive()?;
        let mail = self.mail();
        routing::write(&mail, routing).map_err(|error| failed("set routing", MAIL, &error))?;
        self.copy_to_guest(|inbound| in_transaction(inbound, |inbound| routing::copy(&mail, inbound)));
        Ok(())
    }

    /// Where answers go, if that was set.
    ///
    /// # Errors
    /// Those of [`set_routing`](Self::set_routing).
    pub fn routing(&self) -> Result<Option<Routing>> {
        self.alive()?;
        routing::read(&self.mail()).map_err(|error| failed("read routing", MAIL, &error))
    }

    /// Notes whether a guest runs. One that runs is active now.
    ///
    /// # Errors
    /// Those of [`set_routing`](Self::set_routing).
    pub fn set_status(&self, status: GuestStatus) -> Result<()> {
        self.alive()?;
        let now = to_millis(SystemTime::now());
        let write = |mail: &Connection| {
            let set = "INSERT OR REPLACE INTO state (name, value) VALUES (?1, ?2)";
            mail.execute(set, ("status", status.name()))?;
            if status == GuestStatus::Running {
                mail.execute(set, ("active", now))?;
            }
            Ok(())
        };
        in_transaction(&self.mail(), write).map_err(|error| failed("set status", MAIL, &error))
    }

    /// Whether a guest runs, as was noted last; [`Stopped`](GuestStatus::Stopped) if nothing was.
    ///
    /// # Errors
    /// Those of [`set_routing`](Self::set_routing).
    pub fn status(&self) -> Result<GuestStatus> {
        self.alive()?;
        let name: Option<String> =
            self.state("status").map_err(|error| failed("read status", MAIL, &error))?;
        let known = GuestStatus::ALL.into_iter().find(|status| name.as_deref() == Some(status.name()));
        Ok(known.unwrap_or(GuestStatus::Stopped))
    }

    /// When the session was last active: a guest was noted as running, or was given a message.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn last_active(&self) -> Result<Option<SystemTime>> {
        self.alive()?;
        let noted: Option<i64> = self.state("active").map_err(|error| failed("read status", MAIL, &error))?;
        let sql = "SELECT max(created) FROM messages_in";
        let put: rusqlite::Result<Option<i64>> = self.open_inbound()?.query_row(sql, (), |row| row.get(0));
        let put = put.map_err(|error| failed("read status", INBOUND, &error))?;
        Ok(noted.max(put).map(from_millis))
    }

    fn state<T: rusqlite::types::FromSql>(&self, name: &str) -> rusqlite::Result<Option<T>> {
        let sql = "SELECT value FROM state WHERE name = ?1";
        self.mail().query_row(sql, [name], |row| row.get(0)).optional()
    }
}
