//! What the guest does to a session.

use std::path::Path;

use beneath_kit::race::{Flip, link_and_unlink};
use beneath_kit::strikes::exchange::{Bait, Held, exchange, open_dir, reach};
use rustix::fs::CWD;

use super::stage::{DIRECTORY, FILE, MESSAGE_BOX};
use super::{Call, Exchange, GUEST, MESSAGE, Play};

pub(super) fn plan(play: Play, base: &Path) -> rustix::io::Result<Flip> {
    let (root, outside) = (open_dir(CWD, base.join("root"))?, base.join("outside"));
    let (call, scene) = (play.call, play.call.places().scene);
    let hold = |dir: &str, name: &'static str, bait: Bait<'_>| {
        Held::new(reach(&root, dir)?, name, reach(&root, dir)?, "x", bait, &outside)
    };
    Ok(match play.exchange {
        Exchange::Part(name, bait) => part(hold(GUEST, name, bait)?, call),
        Exchange::Message => {
            let at = reach(&root, if call == Call::Deliver { "s/guest/inbox" } else { "s/guest/outbox" })?;
            Box::new(move |_| {
                // The host may have taken the link with the message's name.
                let _ = Bait::Link(MESSAGE_BOX).plant(&outside, &at, "x");
                exchange(&at, MESSAGE, &at, "x")
            })
        }
        Exchange::File(bait) => {
            let held = hold(scene, "f", bait)?;
            Box::new(move |_| held.flip())
        }
        Exchange::SecondNameRace => link_and_unlink(reach(&root, scene)?, "f", outside.join(FILE)),
        Exchange::DirLink => {
            let mut held = None;
            Box::new(move |_| {
                // What was opened last is kept while it is removed under a name the guest does not know.
                held = reach(&root, scene).ok().or(held.take());
                let Some(top) = &held else { return Ok(()) };
                if call == Call::Harden {
                    // Elsewhere the host's bookkeeping plants it: the tree is made anew for each call.
                    let _ = Bait::Link(DIRECTORY).plant(&outside, top, "l");
                }
                exchange(top, "d", top, "l")
            })
        }
    })
}

/// Exchanges a directory that the host made for the guest.
fn part(held: Held, call: Call) -> Flip {
    // A refusal takes far less time than the call, and a call may look the name up many times: if the link were there half
    // of the time, few would succeed.
    let rarity = if call == Call::InPlace { 3 } else { 2 };
    let mut linked = false;
    Box::new(move |dice| {
        held.flip()?;
        linked = !linked;
        if linked && dice.below(rarity) > 0 {
            held.flip()?;
            linked = false;
        }
        Ok(())
    })
}
