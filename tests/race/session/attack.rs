//! What the guest does to a session.

use std::os::fd::OwnedFd;
use std::path::Path;

use beneath_kit::race::{Flip, link_and_unlink};
use beneath_kit::strikes::exchange::{Bait, Held, exchange, open_dir, reach};
use rustix::fs::CWD;

use super::stage::{BOX, DIRECTORY, FILE, MESSAGE_BOX};
use super::{Call, Exchange, GUEST, MESSAGE, Play};

pub(super) fn plan(play: Play, base: &Path) -> rustix::io::Result<Flip> {
    let (root, outside) = (open_dir(CWD, base.join("root"))?, base.join("outside"));
    let (call, scene) = (play.call, play.call.scene());
    let file = |bait: Bait<'_>| -> rustix::io::Result<Flip> {
        let held = Held::new(reach(&root, scene)?, "f", reach(&root, scene)?, "x", bait, &outside)?;
        Ok(Box::new(move |_| {
            let _ = held.flip();
        }))
    };
    match play.exchange {
        Exchange::Inbox => part(&root, call, "inbox", Bait::Link(BOX), &outside),
        Exchange::Outbox => part(&root, call, "outbox", Bait::Link(BOX), &outside),
        Exchange::Workspace => part(&root, call, "workspace", Bait::Link(MESSAGE_BOX), &outside),
        Exchange::Message => {
            let at = reach(&root, if call == Call::Deliver { "s/guest/inbox" } else { "s/guest/outbox" })?;
            Ok(Box::new(move |_| {
                // The host may have taken the link with the message's name.
                let _ = Bait::Link(MESSAGE_BOX).plant(&outside, &at, "x");
                let _ = exchange(&at, MESSAGE, &at, "x");
            }))
        }
        Exchange::FileLink => file(Bait::Link(FILE)),
        Exchange::FileFifo => file(Bait::Fifo),
        Exchange::HardLink => file(Bait::SecondName(FILE)),
        Exchange::HardLinkRace => Ok(link_and_unlink(reach(&root, scene)?, "f", outside.join(FILE))),
        Exchange::DirLink => {
            let mut held = None;
            Ok(Box::new(move |_| {
                // What was opened last is kept while it is removed under a name the guest does not know.
                held = reach(&root, scene).ok().or(held.take());
                if let Some(top) = &held {
                    if call == Call::Harden {
                        // Elsewhere the host's bookkeeping plants it: the tree is made anew for each call.
                        let _ = Bait::Link(DIRECTORY).plant(&outside, top, "l");
                    }
                    let _ = exchange(top, "d", top, "l");
                }
            }))
        }
    }
}

/// Exchanges a directory that the host made for the guest.
fn part(
    root: &OwnedFd,
    call: Call,
    name: &'static str,
    bait: Bait<'_>,
    outside: &Path,
) -> rustix::io::Result<Flip> {
    let held = Held::new(reach(root, GUEST)?, name, reach(root, GUEST)?, "x", bait, outside)?;
    // A refusal takes far less time than the call, and a call may look the name up many times: if the link were there half
    // of the time, few would succeed.
    let rarity = if call == Call::InPlace { 8 } else { 2 };
    let mut linked = false;
    Ok(Box::new(move |dice| {
        let _ = held.flip();
        linked = !linked;
        if linked && dice.below(rarity) > 0 {
            let _ = held.flip();
            linked = false;
        }
    }))
}
