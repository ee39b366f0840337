//! Looking for the signs of a guest that hangs.

use std::time::{Duration, SystemTime};

use super::acks::{AckStatus, Acks};
use super::handle::Mailbox;
use super::hostile::Image;
use super::liveness::{Signs, Verdict};
use crate::error::{Error, Result};

impl Mailbox {
    /// Whether the guest hangs, by its heartbeat, its acks and what it says of the tool that runs: see
    /// [`Patience::judge`](super::Patience::judge).
    ///
    /// After the guest was ended, [`retry`](Self::retry) each message that it was [processing](AckStatus::Processing).
    ///
    /// # Errors
    /// Those of [`Session::heartbeat_age`](crate::Session::heartbeat_age) and of [`acks`](Self::acks), unless the heartbeat alone decides.
    pub fn stuck(&self, now: SystemTime) -> Result<Verdict> {
        self.alive()?;
        let heartbeat = self.session().heartbeat_age(self.heartbeat())?;
        let signs = Signs { heartbeat, ..Signs::default() };
        let patience = self.config().patience();
        match self.look_at_guest(signs.clone(), now) {
            Ok(signs) => Ok(patience.judge(&signs)),
            Err(error) => match patience.judge(&signs) {
                Verdict::Working => Err(error),
                verdict => Ok(verdict),
            },
        }
    }

    fn look_at_guest(&self, mut signs: Signs, now: SystemTime) -> Result<Signs> {
        let Some(image) = self.read_outbound("look at guest")? else { return Ok(signs) };
        let acks = Acks::of(&image)?.acks.into_iter();
        // A time in the future is one of a wrong clock.
        let age = |since: SystemTime| now.duration_since(since).unwrap_or_default();
        let claims = acks.filter(|ack| ack.status == AckStatus::Processing);
        signs.claims = claims.map(|ack| (ack.id, age(ack.changed))).collect();
        signs.declared = declared(&image)?;
        Ok(signs)
    }
}

/// How long the tool that runs now may take.
fn declared(image: &Image) -> Result<Option<Duration>> {
    if !image.has("activity") {
        return Ok(None);
    }
    let sql =
        "SELECT timeout FROM activity NOT INDEXED WHERE typeof(timeout) = 'integer' AND tool IS NOT NULL";
    let mut longest = None;
    image.for_each(sql, |row| {
        let timeout = row.get::<_, i64>(0).ok().and_then(|timeout| u64::try_from(timeout).ok());
        longest = longest.max(timeout);
        Ok::<_, Error>(())
    })?;
    Ok(longest.map(Duration::from_millis))
}
