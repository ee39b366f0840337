//! The same work done in several ways: plain `std`, the bare syscalls, this crate, and others.

mod change;
mod copy;
mod look;
mod read;
mod remove;
mod write;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use beneath::{Root, Seal, Seat, ambient_authority};
use beneath_kit::bench::{Ground, Work};
use cap_std::fs::Dir;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat};

use read::Mount::{AsIs, Sealed};

pub const WORKS: &[Work] = &[
    ("read 1 KiB, depth 1", |ground| read::read(ground, 1, AsIs)),
    ("read 1 KiB, depth 3", |ground| read::read(ground, 3, AsIs)),
    ("read 1 KiB, depth 8", |ground| read::read(ground, 8, AsIs)),
    ("read 1 KiB, depth 3, sealed", |ground| read::read(ground, 3, Sealed)),
    ("write 1 KiB", |ground| write::write(ground, 1 << 10)),
    ("write 64 KiB", |ground| write::write(ground, 64 << 10)),
    ("copy 64 MiB", |ground| copy::copy(ground, 64 << 20)),
    ("rename", change::rename),
    ("set_access", change::set_access),
    ("remove 100 x 100", |ground| remove::remove(ground, remove::SQUARE)),
    ("remove 2,000 x 5, 3 deep", |ground| remove::remove(ground, remove::DEEP)),
    ("remove 20,000, wide", |ground| remove::remove(ground, remove::WIDE)),
    ("list 20,000", look::list),
    ("walk 20,000", look::walk),
];

/// Does something from one name to another.
type FromTo<N> = Box<dyn FnMut(&N, &N)>;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const PIN: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn hold(dir: &Path) -> OwnedFd {
    openat(CWD, dir, PIN | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn ours(dir: &Path) -> Root {
    Root::open_ambient(dir, ambient_authority()).unwrap()
}

/// The same on a mount of its own, which takes root.
fn sealed(ground: &Ground) -> Result<Root, String> {
    use std::os::unix::fs::DirBuilderExt as _;
    let seat = ground.dir.with_extension("seat");
    fs::DirBuilder::new().mode(0o700).recursive(true).create(&seat).unwrap();
    let seat = Seat::open_ambient(seat, ambient_authority()).unwrap();
    ours(&ground.dir).seal(Seal::ReadWrite, &seat).map_err(|error| error.to_string())
}

fn capped(dir: &Path) -> Dir {
    Dir::open_ambient_dir(dir, ambient_authority()).unwrap()
}
