//! Mounts that a session keeps for the next start.
//!
//! Problem: a record of what was granted is trusted like a grant, and the bases, the rules and the directories may have changed
//! since. A record in reach of the guest is what the guest makes of it.
//!
//! Defence: it is in the host's part of the session. Each line is only a request: it is judged anew, by the current rules and for
//! the current user, and the directory must be the one that was granted, by device and inode. Every line ends among the mounts, the
//! refused or the changed.
//!
//! What remains: an inode number may be used again after a directory was removed; such a directory is beneath the base as well. A
//! file system may have another device number after a restart, as btrfs and NFS do; then its directories count as changed.

use super::base::Mode;
use super::denial::Denial;
use super::granted::Mounts;
use super::rules::{Request, Rules};
use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;

const PLACE: &str = "state/mounts";
const HEAD: &str = "beneath mounts 1";
/// The last line, which shows that the record is complete.
const END: &str = "end";
/// More than any set has.
const BYTES: u64 = 1 << 20;

/// What [`Mounts::load`] found. Each alias of the record is in one of the three.
#[derive(Debug)]
#[must_use = "mounts may have been refused"]
#[non_exhaustive]
pub struct Loaded {
    /// What is granted again.
    pub mounts: Mounts,
    /// Aliases that are denied now, and why; also what is gone from an [optional](super::Base::optional) base.
    pub refused: Vec<(String, Denial)>,
    /// Aliases whose directory is another one than the one that was granted; they are not among the mounts.
    pub changed: Vec<String>,
}

impl Loaded {
    /// Whether all that was saved is granted again.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty() && self.changed.is_empty()
    }
}

impl Mounts {
    /// Writes the mounts to the host's part of the session, in place of those of before. What was [missing](Self::missing) is not
    /// among them.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if the session was removed, and those of [`Root::replace`](crate::Root::replace).
    pub fn save(&self, session: &Session) -> Result<()> {
        session.alive()?;
        let mut text = format!("{HEAD}\n");
        for mount in self.iter() {
            let (device, inode) = mount.identity();
            let fields =
                [mount.alias().as_str(), mount.base().as_str(), mount.subpath(), mount.mode().as_str()];
            text.push_str(&format!("{}\t{device}\t{inode}\n", fields.join("\t")));
        }
        text.push_str(&format!("{END}\n"));
        session.host().replace(PLACE, text)
    }

    /// Grants anew what was saved.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) if the record is damaged, [`NotFound`](ErrorKind::NotFound) if the session was removed,
    /// and those of [`Root::read_contained`](crate::Root::read_contained). Without a record there are no mounts.
    pub fn load(session: &Session, rules: &Rules, user: &str) -> Result<Loaded> {
        session.alive()?;
        let bytes = match session.host().read_contained(PLACE, BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => format!("{HEAD}\n{END}\n").into_bytes(),
            bytes => bytes?,
        };
        let damaged = || Error::new("load mounts", PLACE, ErrorKind::InvalidData).with_detail("is damaged");
        let text = str::from_utf8(&bytes).map_err(|_| damaged())?;
        let mut lines = text.strip_suffix('\n').ok_or_else(damaged)?.split('\n');
        if (lines.next(), lines.next_back()) != (Some(HEAD), Some(END)) {
            return Err(damaged());
        }
        let lines = lines.map(line).collect::<Option<Vec<_>>>().ok_or_else(damaged)?;
        let (mut refused, mut wanted) = (Vec::new(), lines);
        let granted = loop {
            let requests: Vec<Request<'_>> = wanted.iter().map(|(request, _)| *request).collect();
            match rules.grant(user, &requests) {
                Ok(granted) => break granted,
                // Without those that are denied, the rest is judged as a set again, which may no longer be too large.
                Err(denials) => {
                    let mut denied: Vec<(usize, Denial)> = denials.iter().collect();
                    if denied.iter().any(|(_, denial)| *denial != Denial::TooManyMounts) {
                        denied.retain(|(_, denial)| *denial != Denial::TooManyMounts);
                    }
                    let mut number = 0;
                    wanted.retain(|(request, _)| {
                        let denial = denied.iter().find(|(denied, _)| *denied == number);
                        number += 1;
                        refused.extend(denial.map(|(_, denial)| (request.alias.to_owned(), *denial)));
                        denial.is_none()
                    });
                }
            }
        };
        refused.extend(granted.missing().iter().map(|alias| (alias.to_string(), Denial::PathNotFound)));
        let known =
            |alias: &str| wanted.iter().find(|(request, _)| request.alias == alias).map(|(_, was)| *was);
        let (mounts, changed) = granted.keep(|mount| known(mount.alias().as_str()) == Some(mount.identity()));
        Ok(Loaded { mounts, refused, changed })
    }
}

/// A request, with device and inode of what was granted.
fn line(text: &str) -> Option<(Request<'_>, (u64, u64))> {
    let mut fields = text.split('\t');
    let (alias, base, subpath) = (fields.next()?, fields.next()?, fields.next()?);
    let mode = match fields.next()? {
        "ro" => Mode::ReadOnly,
        "rw" => Mode::ReadWrite,
        _ => return None,
    };
    let identity = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    fields.next().is_none().then_some((Request { alias, base, subpath, mode }, identity))
}
