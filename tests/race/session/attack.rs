//! What the guest does to a session.

use rustix::fs::{AtFlags, CWD, linkat, symlinkat};

use super::{Call, Exchange, GUEST, MESSAGE};
use crate::attacks::{Flip, Ground, exchange, exchange_for_fifo, link_and_unlink};

pub(crate) fn plan(call: Call, what: Exchange, ground: &Ground) -> rustix::io::Result<Flip> {
    match what {
        Exchange::Inbox => part(ground, call, "inbox", "a/b"),
        Exchange::Outbox => part(ground, call, "outbox", "a/b"),
        Exchange::Workspace => part(ground, call, "workspace", "a/b/c"),
        Exchange::Message => {
            let at = ground.inside(match call {
                Call::Deliver => "s/guest/inbox",
                _ => "s/guest/outbox",
            })?;
            let target = ground.outside("a/b/c");
            Ok(Box::new(move |_| {
                // The host may have taken the link with the message's name.
                let _ = symlinkat(&target, &at, "x");
                exchange(&at, MESSAGE, &at, "x");
            }))
        }
        Exchange::FileLink => {
            let at = ground.inside(call.scene())?;
            symlinkat(ground.outside("a/b/c/f"), &at, "x")?;
            Ok(Box::new(move |_| exchange(&at, "f", &at, "x")))
        }
        Exchange::FileFifo => exchange_for_fifo(ground, call.scene()),
        Exchange::HardLink => {
            let at = ground.inside(call.scene())?;
            linkat(CWD, ground.outside("a/b/c/f"), &at, "x", AtFlags::empty())?;
            Ok(Box::new(move |_| exchange(&at, "f", &at, "x")))
        }
        Exchange::HardLinkRace => link_and_unlink(ground, call.scene()),
        Exchange::DirLink => {
            let (ground, target) = (ground.clone(), ground.outside("a/b/c/job/d"));
            let mut held = None;
            Ok(Box::new(move |_| {
                // What was opened last is kept while it is removed under a name the guest does not know.
                held = ground.inside(call.scene()).ok().or(held.take());
                if let Some(top) = &held {
                    if call == Call::Harden {
                        // Elsewhere the host's bookkeeping plants it: the tree is made anew for each call.
                        let _ = symlinkat(&target, top, "l");
                    }
                    exchange(top, "d", top, "l");
                }
            }))
        }
    }
}

/// Exchanges a directory that the host made for the guest.
fn part(ground: &Ground, call: Call, name: &'static str, target: &str) -> rustix::io::Result<Flip> {
    let at = ground.inside(GUEST)?;
    symlinkat(ground.outside(target), &at, "x")?;
    // A refusal takes far less time than the call, and a call may look the name up many times: if the link stood there half
    // of the time, few would succeed.
    let rarity = if call == Call::InPlace { 8 } else { 2 };
    let mut linked = false;
    Ok(Box::new(move |dice| {
        exchange(&at, name, &at, "x");
        linked = !linked;
        if linked && dice.below(rarity) > 0 {
            exchange(&at, name, &at, "x");
            linked = false;
        }
    }))
}
