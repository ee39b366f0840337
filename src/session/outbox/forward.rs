//! Passing a claimed message on to another guest.
//!
//! Problem: an inode that is moved or linked to another session is shared by two guests, and a file grows while it is copied.
//!
//! Defence: the content is copied, one file at a time, and every byte that is really read counts towards the message's limit.
//!
//! What remains: a sender that writes meanwhile decides what is copied.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::claim::Claim;
use super::collected::Collector;
use crate::error::{Error, Result};
use crate::name::{GuestPath, MessageId};
use crate::session::inbox::{Attachment, Delivery, Inbox};
use crate::session::limited::LimitedFile;

const OPERATION: &str = "forward";

impl Claim {
    /// Delivers the declared files to another session's inbox, as the message `id` there.
    ///
    /// Both sides are contained on their own. Files are copied, one at a time, so that neither guest holds anything of
    /// the other's. The inbox gives each a [`SafeName`](crate::SafeName) made from its own; a file that cannot be read is a refused outcome of the delivery. Tried again after a crash, it
    /// finds what it had copied.
    ///
    /// The limits of both sides hold, those of the sender's outbox for what is really read: a file that grows meanwhile
    /// counts with all its bytes.
    ///
    /// # Errors
    /// Whatever is not the guests' doing and may be better [next time](Error::is_transient), for any of the files, on either
    /// side: forward the message again then, before it is cleared. And the kinds of every resolution of the message's
    /// directory itself.
    ///
    /// # Races
    /// As [`read`](Self::read) on one side and [`Inbox::deliver`] on the other.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = beneath::Root::open_ambient(dir.path(), beneath::ambient_authority())?;
    /// # let sessions = beneath::Sessions::new(root, Default::default());
    /// # let (from, _) = sessions.create(&beneath::SessionId::new("a"))?;
    /// # let (to, _) = sessions.create(&beneath::SessionId::new("b"))?;
    /// # from.guest().ensure_dir("outbox/7")?;
    /// # from.guest().write_exclusive("outbox/7/plan.md", "# Plan")?;
    /// use beneath::MessageId;
    ///
    /// let claim = from.outbox().claim(&MessageId::new("7"))?.unwrap();
    /// let delivery = claim.forward(["plan.md", "missing.md"], &to.inbox(), &MessageId::new("from-a-7"))?;
    /// assert_eq!(to.guest().read_contained("inbox/from-a-7/plan.md", 1024)?, b"# Plan");
    /// assert_eq!(delivery.refused().count(), 1);
    /// assert!(claim.clear().is_complete());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forward<N: AsRef<OsStr>>(
        &self,
        declared: impl IntoIterator<Item = N>,
        inbox: &Inbox,
        id: &MessageId,
    ) -> Result<Delivery> {
        let dir = self.directory()?;
        let mut collector: Collector<GuestPath> = Collector::new(OPERATION, self.session.config().outbox());
        // Names first, files later: one descriptor at a time.
        for raw in declared {
            let name = self.file_name(OPERATION, raw.as_ref());
            collector.add(raw.as_ref(), name, |name, _| Ok((name.clone(), 0)))?;
        }
        let names = collector.finish();
        let room = AtomicU64::new(self.session.config().outbox().message_bytes());
        let most = self.session.config().outbox().file_bytes();
        let attachments: Vec<(&Path, Cow<'_, str>, Option<&Error>)> = names
            .files
            .iter()
            .map(|file| match &file.content {
                Ok(name) => (name.as_path(), name.as_path().to_string_lossy(), None),
                Err(error) => (Path::new(&file.name), file.name.to_string_lossy(), Some(error)),
            })
            .collect();
        let delivery = inbox.deliver(
            id,
            attachments.iter().map(|(name, hint, refused)| {
                let opened = match refused {
                    Some(error) => Err(Error::new(OPERATION, name, error.kind())),
                    None => {
                        GuestPath::new(name).and_then(|name| self.open_typed(&dir, &name)).and_then(|file| {
                            let most = most.min(room.load(Ordering::Relaxed));
                            LimitedFile::new(OPERATION, file, name, most)
                        })
                    }
                };
                match opened {
                    Ok(file) => Attachment::from_reader(Counted { file, room: &room }).with_name(hint),
                    Err(error) => Attachment::unavailable(error),
                }
            }),
        );
        let failed = delivery
            .refused()
            .find(|(_, error)| error.is_transient())
            .map(|(_, error)| error.again(OPERATION));
        failed.map_or(Ok(delivery), Err)
    }
}

/// A file whose bytes are taken off the room of its message as they are read: its size is the guest's to change.
struct Counted<'r> {
    file: LimitedFile,
    room: &'r AtomicU64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        // The file was opened with the room as its limit, and no other is read meanwhile.
        self.room.fetch_sub(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
