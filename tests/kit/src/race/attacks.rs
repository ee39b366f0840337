//! What the guest does, over and over, in a process of its own.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, fchmod, linkat, mkdirat, openat, renameat, symlinkat, unlinkat};

use super::guest::spin;
use super::stage::{chmod_pinned, pin_dir};
use crate::operations::{Effect, Leaf};
use crate::rig::Dice;
use crate::scene::scenario::Scenario;
use crate::strikes::exchange::{
    Bait, Exchange, INNER_LINK, LEAF_DIRECTORY, LEAF_DIRECTORY_LINK, LEAF_FILE, LEAF_LINK, LEAF_SECOND_NAME,
    NEW, PARENT_LINK, exchange, move_new, open_dir, reach,
};

/// One change of the tree. Every step of it may fail, since the host makes and removes meanwhile: that is the race.
pub type Flip = Box<dyn FnMut(&mut Dice) -> rustix::io::Result<()>>;
type Planned = rustix::io::Result<Flip>;

/// Where the guest is.
pub(super) struct Yard<'a> {
    pub(super) base: &'a Path,
    /// What it is aimed at.
    pub(super) aim: &'a Scenario,
}

impl Yard<'_> {
    pub(super) fn dir(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        reach(&open_dir(CWD, self.base.join("root"))?, path)
    }

    pub(super) fn outside(&self, path: &str) -> PathBuf {
        self.base.join("outside").join(path)
    }

    pub(super) fn endless(&self, exchange: &Exchange) -> Planned {
        let held = exchange.hold(self.base, "thing")?;
        Ok(Box::new(move |_| held.flip()))
    }

    fn is_on_tree(&self) -> bool {
        matches!(self.aim.leaf, Leaf::Directory | Leaf::EmptyDirectory)
    }
}

pub(super) fn leaf_for_link(yard: &Yard<'_>) -> Planned {
    match yard.aim.effect {
        Effect::Replaces => plant_over(yard, LEAF_LINK.bait),
        _ if yard.is_on_tree() => yard.endless(&LEAF_DIRECTORY_LINK),
        _ => yard.endless(&LEAF_LINK),
    }
}

pub(super) fn leaf_for_second_name(yard: &Yard<'_>) -> Planned {
    match yard.aim.effect {
        Effect::Replaces => plant_over(yard, LEAF_SECOND_NAME.bait),
        _ => yard.endless(&LEAF_SECOND_NAME),
    }
}

/// A file for a directory or a directory for a file, and now and then for a link.
pub(super) fn leaf_for_another_type(yard: &Yard<'_>) -> Planned {
    let [other, link] = match yard.is_on_tree() {
        true => [LEAF_FILE, LEAF_DIRECTORY_LINK],
        false => [LEAF_DIRECTORY, LEAF_LINK],
    };
    let held = [other.hold(yard.base, "thing")?, link.hold(yard.base, "link")?];
    Ok(Box::new(move |dice| dice.pick(&held).flip()))
}

/// Puts a fresh trap at the leaf, or a plain file for the naive to approve of.
fn plant_over(yard: &Yard<'_>, trap: Bait<'static>) -> Planned {
    let (at, outside) = (yard.dir("g/p")?, yard.outside(""));
    Ok(Box::new(move |dice| {
        let _ = dice.pick(&[trap, Bait::File]).plant(&outside, &at, "trap");
        let _ = renameat(&at, "trap", &at, "leaf");
        // Renaming over another name of the same file leaves both.
        unlinkat(&at, "trap", AtFlags::empty())
    }))
}

/// A name comes and goes, and now and then is a link.
pub(super) fn leaf_comes_and_goes(yard: &Yard<'_>) -> Planned {
    match (yard.aim.effect, yard.aim.leaf) {
        (Effect::MakesDirectories, _) => comes_and_goes(yard, LEAF_DIRECTORY_LINK.bait),
        (_, Leaf::Absent) => comes_and_goes(yard, LEAF_LINK.bait),
        _ => {
            let (at, link) = (yard.dir("g/p")?, LEAF_LINK.hold(yard.base, "thing")?);
            let mut exchanged = false;
            Ok(Box::new(move |dice| {
                if move_new(&at, "away", &at, "leaf").is_ok() {
                    return Ok(());
                }
                if std::mem::take(&mut exchanged) {
                    return link.flip();
                }
                // A refusal takes next to no time, so the file rests at its name for half of it.
                match dice.below(4) {
                    0 => link.flip().map(|()| exchanged = true),
                    1 => move_new(&at, "leaf", &at, "away"),
                    _ => Ok(()),
                }
            }))
        }
    }
}

pub(super) fn comes_and_goes(yard: &Yard<'_>, bait: Bait<'_>) -> Planned {
    let (at, spare) = (yard.dir("g/p")?, yard.dir("spare")?);
    bait.plant(&yard.outside(""), &spare, "thing")?;
    Ok(Box::new(move |_| {
        // One of the two fails, and so do both while the host's own entry has the name.
        move_new(&spare, "thing", &at, "leaf").or_else(|_| move_new(&at, "leaf", &spare, "thing"))
    }))
}

/// In place of a file, a second name of a host's file comes and goes at once. Whoever opens it then and counts the names
/// later finds one.
pub fn link_and_unlink(at: OwnedFd, name: &'static str, secret: PathBuf) -> Flip {
    Box::new(move |dice| {
        let _ = move_new(&at, name, &at, "away");
        for _ in 0..=dice.below(24) {
            let _ = linkat(CWD, &secret, &at, name, AtFlags::empty());
            spin(dice, 64);
            let _ = unlinkat(&at, name, AtFlags::empty());
        }
        // Away until the next time now and then, so that a host that is slow beside the guest meets it too.
        if dice.below(6) > 0 {
            let _ = move_new(&at, "away", &at, name);
        }
        // As long as the names came and went, so that there is something to succeed with.
        spin(dice, 20_000);
        Ok(())
    })
}

/// The parent, its sibling and a link change places while what they hold is exchanged too.
pub(super) fn rename_storm(yard: &Yard<'_>) -> Planned {
    let [g, spare] = [yard.dir("g")?, yard.dir("spare")?];
    let [parent, sibling] = [yard.dir("g/p")?, yard.dir("g/sib")?];
    PARENT_LINK.bait.plant(&yard.outside(""), &spare, "thing")?;
    // For an instant there is nothing at the name, which this effect would rightly fill.
    let fills = yard.aim.effect == Effect::MakesDirectories;
    Ok(Box::new(move |dice| match dice.below(6) {
        0 => exchange(&g, "p", &g, "sib"),
        1 | 2 => exchange(&g, "p", &spare, "thing"),
        3 => exchange(&g, "sib", &spare, "thing"),
        4 if !fills => {
            let _ = move_new(&g, "p", &spare, "away");
            move_new(&spare, "away", &g, "p")
        }
        _ => exchange(&parent, "leaf", &sibling, "leaf"),
    }))
}

/// A directory in the leaf for a link that is there too.
pub(super) fn inner_for_link(yard: &Yard<'_>) -> Planned {
    let at = yard.dir("g/p")?;
    Ok(Box::new(move |_| exchange_inside(&at)))
}

/// The host makes the leaf anew for each removal, and both in it: a bait from outside would go with the first.
fn exchange_inside(at: &OwnedFd) -> rustix::io::Result<()> {
    let leaf = pin_dir(at, "leaf")?;
    exchange(&leaf, INNER_LINK.entry, &leaf, "link")
}

/// Open mostly, or there would be nothing to succeed with.
fn mode(dice: &mut Dice) -> Mode {
    *dice.pick(&[Mode::empty(), Mode::RUSR, Mode::RWXU, Mode::RWXU, Mode::RWXU, Mode::RWXU])
}

/// Modes are toggled beside the exchange for a link.
pub(super) fn modes(yard: &Yard<'_>) -> Planned {
    let at = yard.dir("g/p")?;
    if yard.aim.effect == Effect::RemovesTree {
        let held = LEAF_DIRECTORY_LINK.hold(yard.base, "thing")?;
        return Ok(Box::new(move |dice| match dice.below(4) {
            0 => chmod_pinned(&at, "leaf", mode(dice)),
            1 => exchange_inside(&at),
            _ => held.flip(),
        }));
    }
    let held = PARENT_LINK.hold(yard.base, "thing")?;
    Ok(Box::new(move |dice| match dice.below(3) {
        0 => fchmod(&at, mode(dice)),
        _ => held.flip(),
    }))
}

/// Entries are created without pause in a tree under removal.
pub(super) fn create_storm(yard: &Yard<'_>) -> Planned {
    let (at, outside) = (yard.dir("g/p")?, yard.outside("dir"));
    let mut turn = 0_u32;
    Ok(Box::new(move |dice| {
        turn = (turn + 1) % 16;
        let leaf = open_dir(&at, "leaf")?;
        let new_file = |dir: &OwnedFd| openat(dir, format!("f{turn}"), NEW, Mode::RUSR).map(drop);
        match dice.below(5) {
            0 => mkdirat(&leaf, format!("d{turn}"), Mode::RWXU),
            1 => new_file(&leaf),
            2 => symlinkat(&outside, &leaf, "link"),
            3 => open_dir(&leaf, "sub").and_then(|sub| new_file(&sub)),
            _ => exchange(&leaf, "sub", &leaf, "link"),
        }
    }))
}

/// The text of a link is rewritten while links are followed.
pub(super) fn rewrite_link(yard: &Yard<'_>) -> Planned {
    let at = yard.dir("g")?;
    let outside = ["../../outside/dir".into(), yard.outside("dir")];
    let texts: Vec<PathBuf> = ["sib".into(), "../g/sib".into()].into_iter().chain(outside).collect();
    Ok(Box::new(move |dice| {
        let _ = symlinkat(dice.pick(&texts), &at, "text");
        renameat(&at, "text", &at, "p")
    }))
}

/// Both ends of a rename and a link change places.
pub(super) fn exchange_ends(yard: &Yard<'_>) -> Planned {
    let (root, g) = (yard.dir(".")?, yard.dir("g")?);
    let end = if yard.aim.effect.brings() { "src" } else { "dst" };
    PARENT_LINK.bait.plant(&yard.outside(""), &g, "link")?;
    Ok(Box::new(move |dice| match dice.below(3) {
        0 => exchange(&g, "p", &root, end),
        1 => exchange(&g, "p", &g, "link"),
        _ => exchange(&root, end, &g, "link"),
    }))
}
