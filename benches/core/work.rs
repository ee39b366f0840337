//! The same work done five ways: plain `std`, the bare syscalls, this crate, cap-std and pathrs.

mod copy;

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use beneath::{Access, Execute, HardLinks, Policy, Root, Seal, Seat, WalkLimits, ambient_authority};
use cap_std::fs::Dir;
use pathrs::flags::OpenFlags;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, StatxFlags, fchmod, fstat, linkat, openat,
    openat2, statx, unlinkat,
};

use copy::copy;

/// One way of doing a group's work. Each call does it once and returns how long the timed part took.
pub struct Line {
    pub name: &'static str,
    pub run: Box<dyn FnMut() -> Duration>,
}

/// One kind of work, the plain way first and the bare syscalls second.
pub struct Group {
    pub name: String,
    pub lines: Vec<Line>,
}

/// Calls per timed stretch, for work that takes about a microsecond.
const MANY: usize = 500;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const PIN: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Every group, on directories made beneath `base`. `nodev` says whether the mount has that flag.
pub fn groups(base: &Path, nodev: bool) -> Vec<Group> {
    let mut groups = Vec::new();
    for depth in [1, 3, 8] {
        groups.push(read(base, depth, nodev));
    }
    groups.push(set_access(base));
    for (label, size) in [("1 KiB", 1 << 10), ("64 KiB", 64 << 10)] {
        groups.push(write(base, label, size));
    }
    groups.push(remove(base, "100x100", grow_wide));
    groups.push(remove(base, "2000x5, 3 deep", grow_deep));
    groups.push(list(base));
    groups.push(walk(base));
    groups.push(copy(base));
    groups
}

fn many(name: &'static str, mut call: impl FnMut() + 'static) -> Line {
    let run = move || {
        let start = Instant::now();
        for _ in 0..MANY {
            call();
        }
        start.elapsed() / MANY as u32
    };
    Line { name, run: Box::new(run) }
}

fn fresh(base: &Path, name: &str) -> PathBuf {
    let dir = base.join(name.replace([' ', ','], "_"));
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn hold(dir: &Path) -> OwnedFd {
    openat(CWD, dir, PIN | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn ours(dir: &Path) -> Root {
    Root::open_ambient(dir, ambient_authority()).unwrap()
}

/// The same on a mount of its own, which takes root.
fn sealed(base: &Path, dir: &Path) -> Option<Root> {
    use std::os::unix::fs::DirBuilderExt as _;
    let seat = base.join("seat");
    fs::DirBuilder::new().mode(0o700).recursive(true).create(&seat).unwrap();
    let seat = Seat::open_ambient(seat, ambient_authority()).unwrap();
    ours(dir).seal(Seal::ReadWrite, &seat).inspect_err(|error| println!("skipped: {error}")).ok()
}

fn capped(dir: &Path) -> Dir {
    Dir::open_ambient_dir(dir, ambient_authority()).unwrap()
}

fn read_all(fd: impl AsFd, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 1);
    while rustix::io::read(&fd, rustix::buffer::spare_capacity(&mut bytes)).unwrap() != 0 {}
    bytes
}

fn read(base: &Path, depth: usize, nodev: bool) -> Group {
    let dir = fresh(base, &format!("read{depth}"));
    let path = format!("{}f", "d/".repeat(depth - 1));
    let absolute = dir.join(&path);
    fs::create_dir_all(absolute.parent().unwrap()).unwrap();
    fs::write(&absolute, vec![7; 1024]).unwrap();

    let raw = hold(&dir);
    let descriptors = hold(Path::new("/proc/self/fd"));
    let raw_path = path.clone();
    let direct = {
        let (raw, path) = (raw.try_clone().unwrap(), path.clone());
        move || {
            let file = openat2(&raw, &*path, READ, Mode::empty(), BENEATH).unwrap();
            let stat = fstat(&file).unwrap();
            assert_eq!(read_all(&file, stat.st_size as usize).len(), 1024);
        }
    };
    let pinned = move || {
        let pin = openat2(&raw, &*raw_path, PIN, Mode::empty(), BENEATH).unwrap();
        let stat = fstat(&pin).unwrap();
        let number = rustix::path::DecInt::from_fd(&pin);
        let file = openat(&descriptors, number, READ, Mode::empty()).unwrap();
        assert_eq!(fstat(&file).unwrap().st_ino, stat.st_ino);
        assert_eq!(read_all(&file, stat.st_size as usize).len(), 1024);
    };
    let root = ours(&dir);
    let strict = ours(&dir).with_policy(Policy::default().with_hard_links(HardLinks::RefuseStrict));
    let (recent, recent_file) = (ours(&dir), fs::File::create(absolute.with_file_name("f.recent")).unwrap());
    let (strict_path, sealed_path, recent_path) = (path.clone(), path.clone(), format!("{path}.recent"));
    let cap = capped(&dir);
    let (ours_path, cap_path, pathrs_path, same_path) = (path.clone(), path.clone(), path.clone(), path);
    let other = pathrs::Root::open(&dir).unwrap();
    let pinning = pathrs::Root::open(&dir).unwrap();
    let (cap_pinning, cap_same_path) = (capped(&dir), same_path.clone());
    let mut lines = vec![
        many("std", move || assert_eq!(fs::read(&absolute).unwrap().len(), 1024)),
        if nodev { many("raw", direct) } else { many("raw", pinned) },
        many("beneath", move || assert_eq!(root.read_contained(&ours_path, 1 << 20).unwrap().len(), 1024)),
        many("beneath, strict", move || {
            assert_eq!(strict.read_contained(&strict_path, 1 << 20).unwrap().len(), 1024)
        }),
        Line {
            name: "beneath, just changed",
            run: Box::new(move || {
                // Every so often, so that it never gets old.
                recent_file.set_len(1024).unwrap();
                let start = Instant::now();
                for _ in 0..MANY {
                    assert_eq!(recent.read_contained(&recent_path, 1 << 20).unwrap().len(), 1024);
                }
                start.elapsed() / MANY as u32
            }),
        },
        many("cap-std", move || assert_eq!(cap.read(&cap_path).unwrap().len(), 1024)),
        many("pathrs", move || {
            let mut bytes = Vec::new();
            let mut file = other.open_subpath(&pathrs_path, OpenFlags::O_RDONLY).unwrap();
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), 1024);
        }),
    ];
    if let Some(root) = sealed(base, &dir) {
        let run = many("beneath, sealed", move || {
            assert_eq!(root.read_contained(&sealed_path, 1 << 20).unwrap().len(), 1024);
        });
        lines.insert(3, run);
    }
    if !nodev {
        // What it takes the others never to open a device node, which their plain lines above do not prevent.
        lines.push(many("cap-std, pinned", move || {
            use cap_std::fs::OpenOptionsExt;
            let mut options = cap_std::fs::OpenOptions::new();
            options.read(true).custom_flags((OFlags::PATH | OFlags::NOFOLLOW).bits() as i32);
            let pin = cap_pinning.open_with(&cap_same_path, &options).unwrap();
            assert!(pin.metadata().unwrap().is_file());
            let file =
                openat(CWD, format!("/proc/self/fd/{}", pin.as_raw_fd()), READ, Mode::empty()).unwrap();
            assert_eq!(read_all(&file, 1024).len(), 1024);
        }));
        lines.push(many("pathrs, pinned", move || {
            let pin = pinning.resolve(&same_path).unwrap();
            assert!(FileType::from_raw_mode(fstat(&pin).unwrap().st_mode).is_file());
            let mut bytes = Vec::new();
            pin.reopen(OpenFlags::O_RDONLY | OpenFlags::O_NONBLOCK).unwrap().read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), 1024);
        }));
    }
    Group { name: format!("read 1 KiB, depth {depth}"), lines }
}

/// Changes the mode of a file back and forth.
fn set_access(base: &Path) -> Group {
    let dir = fresh(base, "access");
    let path = dir.join("f");
    fs::write(&path, "x").unwrap();
    let (raw, root, unchanged) = (hold(&dir), ours(&dir), ours(&dir));
    let descriptors = hold(Path::new("/proc/self/fd"));
    fs::write(dir.join("same"), "x").unwrap();
    let mut turn = 0_u32;
    let mut mode = move || {
        turn += 1;
        if turn.is_multiple_of(2) { 0o600 } else { 0o640 }
    };
    let (mut raw_mode, mut our_mode) = (mode, mode);
    let lines = vec![
        many("std", move || {
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode());
            fs::set_permissions(&path, permissions).unwrap();
        }),
        many("raw, no proof", move || {
            let pin = openat2(&raw, "f", PIN, Mode::empty(), BENEATH).unwrap();
            assert_eq!(fstat(&pin).unwrap().st_nlink, 1);
            let number = rustix::path::DecInt::from_fd(&pin);
            let mode = Mode::from_raw_mode(raw_mode());
            rustix::fs::chmodat(&descriptors, number, mode, AtFlags::empty()).unwrap();
        }),
        many("beneath", move || {
            root.set_access("f", Access::custom(our_mode(), 0o700), Execute::Clear).unwrap();
        }),
        many("beneath, unchanged", move || {
            unchanged.set_access("same", Access::custom(0o644, 0o700), Execute::Clear).unwrap();
        }),
    ];
    Group { name: "set_access".into(), lines }
}

/// Runs `call` with a fresh name each time, and empties the directory outside the timing.
fn writing(name: &'static str, dir: PathBuf, mut call: impl FnMut(&str) + 'static) -> Line {
    let names: Vec<String> = (0..MANY).map(|n| format!("f{n}")).collect();
    let run = move || {
        let start = Instant::now();
        for name in &names {
            call(name);
        }
        let taken = start.elapsed() / MANY as u32;
        for name in &names {
            fs::remove_file(dir.join(name)).unwrap();
        }
        taken
    };
    Line { name, run: Box::new(run) }
}

fn write(base: &Path, label: &str, size: usize) -> Group {
    let dir = fresh(base, &format!("write {label}"));
    let bytes: &'static [u8] = Box::leak(vec![7; size].into_boxed_slice());
    let raw = hold(&dir);
    let root = ours(&dir);
    let (cap, temporary) = (capped(&dir), capped(&dir));
    let other = pathrs::Root::open(&dir).unwrap();
    let plain = dir.clone();
    let seal = sealed(base, &dir).map(|root| {
        writing("beneath, sealed", dir.clone(), move |name| root.write_exclusive(name, bytes).unwrap())
    });
    let mut lines = vec![
        writing("std", dir.clone(), move |name| {
            use std::io::Write;
            fs::File::create_new(plain.join(name)).unwrap().write_all(bytes).unwrap();
        }),
        writing("raw", dir.clone(), move |name| {
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = openat(&raw, ".", flags, Mode::RUSR | Mode::WUSR).unwrap();
            assert_eq!(rustix::io::write(&file, bytes).unwrap(), bytes.len());
            fchmod(&file, Mode::RUSR | Mode::WUSR).unwrap();
            linkat(&file, "", &raw, name, AtFlags::EMPTY_PATH).unwrap();
        }),
        writing("beneath", dir.clone(), move |name| root.write_exclusive(name, bytes).unwrap()),
        writing("cap-std, not atomic", dir.clone(), move |name| {
            use std::io::Write;
            let mut options = cap_std::fs::OpenOptions::new();
            cap.open_with(name, options.write(true).create_new(true)).unwrap().write_all(bytes).unwrap();
        }),
        writing("cap-tempfile", dir.clone(), move |name| {
            use std::io::Write;
            let mut file = cap_tempfile::TempFile::new(&temporary).unwrap();
            file.write_all(bytes).unwrap();
            file.replace(name).unwrap();
        }),
        writing("pathrs, not atomic", dir, move |name| {
            use std::io::Write;
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            let flags = OpenFlags::O_WRONLY | OpenFlags::O_EXCL;
            other.create_file(name, flags, &permissions).unwrap().write_all(bytes).unwrap();
        }),
    ];
    lines.splice(3..3, seal);
    Group { name: format!("write {label}"), lines }
}

fn grow_wide(top: &Path) {
    for outer in 0..100 {
        let dir = top.join(format!("d{outer}"));
        fs::create_dir_all(&dir).unwrap();
        for inner in 0..100 {
            fs::write(dir.join(format!("f{inner}")), b"").unwrap();
        }
    }
}

fn grow_deep(top: &Path) {
    for outer in 0..2000 {
        let dir = top.join(format!("d{outer}/a/b"));
        fs::create_dir_all(&dir).unwrap();
        for inner in 0..5 {
            fs::write(dir.join(format!("f{inner}")), b"").unwrap();
        }
    }
}

fn remove(base: &Path, label: &str, grow: fn(&Path)) -> Group {
    let dir = fresh(base, &format!("remove {label}"));
    let removing = |name: &'static str, mut call: Box<dyn FnMut()>| {
        let top = dir.join("top");
        let run = move || {
            grow(&top);
            let start = Instant::now();
            call();
            let taken = start.elapsed();
            assert!(!top.exists());
            taken
        };
        Line { name, run: Box::new(run) }
    };
    let plain = dir.join("top");
    let raw = hold(&dir);
    let root = ours(&dir);
    let cap = capped(&dir);
    let other = pathrs::Root::open(&dir).unwrap();
    let lines = vec![
        removing("std", Box::new(move || fs::remove_dir_all(&plain).unwrap())),
        removing("raw", Box::new(move || raw_remove(&raw, c"top".to_owned()))),
        removing(
            "beneath",
            Box::new(move || assert!(root.remove_tree_contained("top").unwrap().is_complete())),
        ),
        removing("cap-std", Box::new(move || cap.remove_dir_all("top").unwrap())),
        removing("pathrs", Box::new(move || other.remove_all("top").unwrap())),
    ];
    Group { name: format!("remove {label}"), lines }
}

fn raw_remove(parent: impl AsFd, name: CString) {
    let dir = openat2(&parent, &name, DIRECTORY, Mode::empty(), BENEATH).unwrap();
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        match (entry.file_name().to_bytes(), entry.file_type()) {
            (b"." | b"..", _) => {}
            (_, FileType::Directory) => raw_remove(&dir, entry.file_name().to_owned()),
            _ => unlinkat(&dir, entry.file_name(), AtFlags::empty()).unwrap(),
        }
    }
    unlinkat(&parent, &name, AtFlags::REMOVEDIR).unwrap();
}

const ENTRIES: usize = 20_000;

fn once(name: &'static str, mut call: impl FnMut() -> u64 + 'static) -> Line {
    let run = move || {
        let start = Instant::now();
        let total = call();
        let taken = start.elapsed();
        assert_eq!(total, ENTRIES as u64);
        taken
    };
    Line { name, run: Box::new(run) }
}

/// Lists with metadata; every file holds one byte, so that the sizes add up to the count.
fn list(base: &Path) -> Group {
    let dir = fresh(base, "list");
    for n in 0..ENTRIES {
        fs::write(dir.join(format!("file-{n}")), b"x").unwrap();
    }
    let plain = dir.clone();
    let raw = hold(&dir);
    let root = ours(&dir);
    let cap = capped(&dir);
    let lines = vec![
        once("std", move || {
            fs::read_dir(&plain).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
        }),
        once("raw", move || raw_sizes(&raw, ".", false)),
        once("beneath", move || root.list(".").unwrap().map(|entry| entry.unwrap().metadata().len()).sum()),
        once("cap-std", move || {
            cap.entries().unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
        }),
    ];
    Group { name: "list 20,000".into(), lines }
}

fn walk(base: &Path) -> Group {
    let dir = fresh(base, "walk");
    for n in 0..ENTRIES {
        let inner = dir.join(format!("d{}/e{}", n % 20, n % 400));
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join(format!("file-{n}")), b"x").unwrap();
    }
    let plain = dir.clone();
    let raw = hold(&dir);
    let root = ours(&dir);
    let cap = capped(&dir);
    let lines = vec![
        once("walkdir", move || {
            walkdir::WalkDir::new(&plain)
                .into_iter()
                .map(|entry| entry.unwrap().metadata().unwrap())
                .filter(|metadata| metadata.is_file())
                .map(|metadata| metadata.len())
                .sum()
        }),
        once("raw", move || raw_sizes(&raw, ".", true)),
        once("beneath", move || {
            let walk = root.walk(".", WalkLimits::default()).unwrap();
            walk.map(|entry| entry.unwrap())
                .filter(|entry| entry.metadata().is_file())
                .map(|entry| entry.metadata().len())
                .sum()
        }),
        once("cap-std", move || cap_sizes(&cap)),
    ];
    Group { name: "walk 20,000".into(), lines }
}

fn raw_sizes<P: rustix::path::Arg>(parent: impl AsFd, name: P, deep: bool) -> u64 {
    let wanted = StatxFlags::BASIC_STATS;
    let dir = openat2(&parent, name, DIRECTORY, Mode::empty(), BENEATH).unwrap();
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
    let mut total = 0;
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        // An owned name, as every other way gives one.
        std::hint::black_box(entry.file_name().to_owned());
        let found = statx(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW, wanted).unwrap();
        if FileType::from_raw_mode(found.stx_mode.into()).is_file() {
            total += found.stx_size;
        } else if deep {
            total += raw_sizes(&dir, entry.file_name(), deep);
        }
    }
    total
}

fn cap_sizes(dir: &Dir) -> u64 {
    let sizes = dir.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        match entry.metadata().unwrap() {
            metadata if metadata.is_dir() => cap_sizes(&entry.open_dir().unwrap()),
            metadata => metadata.len(),
        }
    });
    sizes.sum()
}
