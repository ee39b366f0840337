//! Operations of the host between mutations by a guest, against a tree in memory: same answers, same tree, and a canary
//! outside that nothing touches.
#![no_main]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use beneath::{
    Budget, Ensured, ErrorKind, HardLinks, Links, Policy, ResolverChoice, Root, WalkLimits, ambient_authority,
};
use beneath_fuzz::tree::{Meant, Node, SECRET, Tree, checked};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, mknodat, renameat_with, statx,
};

const MARKER: &[u8] = b"SECRET of the host";
const STEPS: usize = 24;
/// Where the scenes are, but for the number of the process.
const SCENES: &str = "/dev/shm/beneath-fuzz-";

/// A path in any spelling: names that are fine, forms that are not.
#[derive(Debug)]
struct Raw(Vec<u8>);

impl<'a> Arbitrary<'a> for Raw {
    fn arbitrary(input: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let mut raw = Vec::new();
        for place in 0..=input.int_in_range(0..=3)? {
            if place > 0 {
                raw.push(b'/');
            }
            match u8::arbitrary(input)? {
                byte @ 0..=239 => raw.push(b"abcd"[usize::from(byte % 4)]),
                240..=243 => raw.extend(b"\xff\n"),
                244 | 245 => raw.extend(b".."),
                246 | 247 => raw.push(b'.'),
                248 => raw.push(0),
                249 => raw.extend([b'n'; 255]),
                250 => raw.extend([b'n'; 256]),
                // Nothing: a doubled, leading or trailing slash.
                _ => {}
            }
        }
        Ok(Self(raw))
    }
}

impl Raw {
    fn path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.0))
    }

    fn checked(&self, meant: Meant) -> Result<PathBuf, ErrorKind> {
        checked(&self.0, meant)
    }
}

#[derive(Arbitrary, Debug)]
enum Step {
    EnsureDir(Raw),
    Write(Raw, u8),
    NewFile(Raw, u8, Fate),
    Replace(Raw, u8),
    Read(Raw, u8),
    Describe(Raw),
    List(Raw),
    Descend(Raw, Raw),
    Rename(Raw, Raw),
    RemoveFile(Raw),
    RemoveTree(Raw),
    RemoveQuarantined(Raw),
    Guest(Mutation, Raw, Raw),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Fate {
    Commit,
    CommitReplace,
    Drop,
}

/// What a guest does to its own tree.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Mutation {
    MakeDir,
    WriteFile(u8),
    LinkOut(u8),
    HardLink,
    HardLinkSecret,
    Fifo,
    Rename,
    Exchange,
    Unlink,
}

#[derive(Arbitrary, Debug)]
struct Input {
    walk: bool,
    allow_hard_links: bool,
    steps: Vec<Step>,
}

/// One directory per process: the tree, the quarantine and the canary. It stays, and each input leaves it as it was.
struct Scene {
    dir: PathBuf,
    /// The tree by resolver, then by what it says to hard links.
    roots: [[Root; 2]; 2],
    /// The tree again, with links followed; only what it must not do is checked.
    follower: Root,
    quarantine: Root,
    canary: Canary,
}

static SCENE: LazyLock<Scene> = LazyLock::new(|| {
    sweep();
    let dir = PathBuf::from(format!("{SCENES}{}", std::process::id()));
    for inner in ["root", "quarantine", "outside/sub"] {
        fs::create_dir_all(dir.join(inner)).unwrap();
    }
    for file in [SECRET_FILE, "outside/sub/a"] {
        fs::write(dir.join(file), MARKER).unwrap();
    }
    let open = |inner: &str, policy: &Policy| {
        Root::open_ambient(dir.join(inner), ambient_authority()).unwrap().with_policy(policy.clone())
    };
    let refuse = Policy::default().with_hard_links(HardLinks::Refuse);
    let roots = [ResolverChoice::Openat2, ResolverChoice::Walk].map(|resolver| {
        [HardLinks::Refuse, HardLinks::Allow]
            .map(|links| open("root", &refuse.clone().with_resolver(resolver).with_hard_links(links)))
    });
    Scene {
        roots,
        follower: open("root", &refuse.clone().with_links(Links::FollowBeneath)),
        quarantine: open("quarantine", &Policy::default()),
        canary: Canary::new(&dir),
        dir,
    }
});

/// Reads by path and follows links, to show that the comparison would notice: `BENEATH_FUZZ_NAIVE=1` must crash at once.
static NAIVE: LazyLock<bool> = LazyLock::new(|| std::env::var_os("BENEATH_FUZZ_NAIVE").is_some());

/// Takes away what earlier processes left, since a fuzzer has no moment at which it ends.
fn sweep() {
    for entry in fs::read_dir("/dev/shm").unwrap().flatten() {
        let path = entry.path();
        let owner = path.to_str().and_then(|path| path.strip_prefix(SCENES));
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            // Another process may be sweeping too.
            let _ = fs::remove_dir_all(path);
        }
    }
}

fuzz_target!(|input: Input| {
    let scene = &*SCENE;
    let mut run = Run {
        scene,
        dir: scene.dir.join("root"),
        root: &scene.roots[usize::from(input.walk)][usize::from(input.allow_hard_links)],
        allow_hard_links: input.allow_hard_links,
        tree: Tree::new(MARKER),
    };
    for step in input.steps.iter().take(STEPS) {
        run.take(step);
    }
    run.compare();
    run.clear();
    scene.canary.check();
});

/// What lies beside the tree, and how it was when nothing had happened yet.
struct Canary {
    scene: File,
    secret: File,
    seen: [Seen; WATCHED.len()],
}

/// The scene, its entries but the tree and the quarantine, and what they hold.
const WATCHED: [&str; 5] = ["", "outside", "outside/sub", "outside/sub/a", SECRET_FILE];
const SECRET_FILE: &str = "outside/a";

/// No entry comes, goes or changes, not even its mode, without a new time of change on it or on its directory.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    inode: u64,
    mode: u16,
    links: u32,
    size: u64,
    owner: (u32, u32),
    modified: (i64, u32),
    changed: Option<(i64, u32)>,
}

impl Canary {
    fn new(dir: &Path) -> Self {
        // The kernel's clock for files ticks every few milliseconds, and the next change must not fall into this tick.
        thread::sleep(Duration::from_millis(50));
        let (scene, secret) = (File::open(dir).unwrap(), File::open(dir.join(SECRET_FILE)).unwrap());
        Self { seen: WATCHED.map(|path| Seen::at(&scene, path)), scene, secret }
    }

    fn check(&self) {
        for (path, seen) in WATCHED.iter().zip(&self.seen) {
            assert_eq!(Seen::at(&self.scene, path), *seen, "{path:?} outside");
        }
        let mut bytes = [0; MARKER.len() + 1];
        let length = self.secret.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..length], MARKER, "the secret outside");
    }
}

impl Seen {
    fn at(scene: &File, path: &str) -> Self {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        let entry = statx(scene, path, flags, StatxFlags::BASIC_STATS).unwrap();
        Self {
            inode: entry.stx_ino,
            mode: entry.stx_mode,
            links: entry.stx_nlink,
            size: entry.stx_size,
            owner: (entry.stx_uid, entry.stx_gid),
            modified: (entry.stx_mtime.tv_sec, entry.stx_mtime.tv_nsec),
            // A guest may give the secret a second name, which changes it; by now that name is gone.
            changed: (path != SECRET_FILE).then_some((entry.stx_ctime.tv_sec, entry.stx_ctime.tv_nsec)),
        }
    }
}

struct Run<'a> {
    scene: &'a Scene,
    dir: PathBuf,
    root: &'a Root,
    allow_hard_links: bool,
    tree: Tree,
}

fn kinds<T>(result: beneath::Result<T>) -> Result<T, ErrorKind> {
    result.map_err(|error| {
        let shown = error.to_string();
        assert!(!shown.contains(char::is_control) && !shown.contains("/dev/shm"), "{shown:?}");
        error.kind()
    })
}

impl Run<'_> {
    fn take(&mut self, step: &Step) {
        match step {
            Step::EnsureDir(raw) => self.ensure_dir(raw),
            Step::Write(raw, byte) => {
                let content = content(*byte);
                let got = kinds(self.root.write_exclusive(raw.path(), &content));
                self.created(raw, &content, got);
            }
            Step::NewFile(raw, byte, fate) => self.new_file(raw, &content(*byte), *fate),
            Step::Replace(raw, byte) => {
                let content = content(*byte);
                let got = kinds(self.root.replace(raw.path(), &content));
                self.replaced(raw, &content, got);
            }
            Step::Read(raw, limit) => self.read(raw, u64::from(*limit)),
            Step::Describe(raw) => self.describe(raw),
            Step::List(raw) => self.list(raw),
            Step::Descend(raw, inner) => {
                let expected = raw
                    .checked(Meant::DirectoryOrRoot)
                    .and_then(|path| self.tree.reach(&path).map(|()| path));
                let got = kinds(self.root.descend(raw.path()));
                assert_eq!(got.as_ref().map(drop), expected.as_ref().map(drop), "descend {raw:?}");
                if let (Ok(narrow), Ok(path)) = (got, expected) {
                    let expected =
                        inner.checked(Meant::Entry).and_then(|inner| self.content(&path.join(inner)));
                    assert_eq!(
                        kinds(narrow.read_contained(inner.path(), 999)),
                        expected,
                        "{raw:?} {inner:?}"
                    );
                }
            }
            Step::Rename(from, to) => self.rename(from, to),
            Step::RemoveFile(raw) => {
                let expected = raw.checked(Meant::Entry).and_then(|path| {
                    self.tree.parent(&path)?;
                    match self.tree.get(&path)? {
                        Node::Dir => Err(ErrorKind::NotRegular),
                        _ => Ok(path),
                    }
                });
                let got = kinds(self.root.remove_file(raw.path()));
                assert_eq!(got, expected.as_ref().map(drop).map_err(|kind| *kind), "remove_file {raw:?}");
                if let Ok(path) = expected {
                    self.tree.take(&path);
                }
            }
            Step::RemoveTree(raw) => {
                let got = kinds(self.root.remove_tree_contained(raw.path()));
                self.removed(raw, got);
            }
            Step::RemoveQuarantined(raw) => {
                let budget = Budget::default();
                let got =
                    kinds(self.root.remove_tree_quarantined(raw.path(), &self.scene.quarantine, budget));
                self.removed(raw, got);
                assert_eq!(self.scene.quarantine.list(".").unwrap().count(), 0);
            }
            Step::Guest(mutation, from, to) => {
                if let (Ok(from), Ok(to)) = (from.checked(Meant::Entry), to.checked(Meant::Entry))
                    && self.tree.parent(&from).is_ok()
                    && self.tree.parent(&to).is_ok()
                {
                    self.mutate(*mutation, &from, &to);
                }
            }
        }
    }

    fn ensure_dir(&mut self, raw: &Raw) {
        let got = kinds(self.root.ensure_dir(raw.path()));
        let expected = raw.checked(Meant::Directory).and_then(|path| match self.tree.reach(&path) {
            Ok(()) => Ok((path, Ensured::Existed)),
            Err(ErrorKind::NotFound) => Ok((path, Ensured::Created)),
            Err(kind) => Err(kind),
        });
        assert_eq!(got, expected.as_ref().map(|(_, how)| *how).map_err(|kind| *kind), "ensure_dir {raw:?}");
        if let Ok((path, _)) = expected {
            for level in path.ancestors().filter(|level| !level.as_os_str().is_empty()) {
                self.tree.nodes.entry(level.to_path_buf()).or_insert(Node::Dir);
            }
        }
    }

    fn new_file(&mut self, raw: &Raw, content: &[u8], fate: Fate) {
        let file = kinds(self.root.new_file(raw.path()));
        let parent = raw.checked(Meant::Entry).and_then(|path| self.tree.parent(&path));
        assert_eq!(file.as_ref().map(drop), parent.as_ref().map(drop), "new_file {raw:?}");
        let Ok(mut file) = file else { return };
        file.write_all(content).unwrap();
        match fate {
            Fate::Commit => {
                let got = kinds(file.commit());
                self.created(raw, content, got);
            }
            Fate::CommitReplace => {
                let got = kinds(file.commit_replace());
                self.replaced(raw, content, got);
            }
            Fate::Drop => drop(file),
        }
    }

    fn created(&mut self, raw: &Raw, content: &[u8], got: Result<(), ErrorKind>) {
        let expected = raw.checked(Meant::Entry).and_then(|path| {
            self.tree.parent(&path)?;
            match self.tree.get(&path) {
                Ok(_) => Err(ErrorKind::AlreadyExists),
                Err(_) => Ok(path),
            }
        });
        assert_eq!(got, expected.as_ref().map(drop).map_err(|kind| *kind), "write {raw:?}");
        if let Ok(path) = expected {
            self.tree.put_file(&path, content);
        }
    }

    fn replaced(&mut self, raw: &Raw, content: &[u8], got: Result<(), ErrorKind>) {
        let expected = raw.checked(Meant::Entry).and_then(|path| {
            self.tree.parent(&path)?;
            match self.tree.get(&path) {
                Ok(Node::Dir) => Err(ErrorKind::NotRegular),
                _ => Ok(path),
            }
        });
        assert_eq!(got, expected.as_ref().map(drop).map_err(|kind| *kind), "replace {raw:?}");
        if let Ok(path) = expected {
            self.tree.put_file(&path, content);
        }
    }

    fn content(&self, path: &Path) -> Result<Vec<u8>, ErrorKind> {
        self.tree.parent(path)?;
        match self.tree.get(path)? {
            Node::File(file) if self.tree.names(*file) > 1 && !self.allow_hard_links => {
                Err(ErrorKind::HardLinked)
            }
            Node::File(file) => Ok(self.tree.contents[*file].clone()),
            Node::Link => Err(ErrorKind::Symlink),
            Node::Dir | Node::Fifo => Err(ErrorKind::NotRegular),
        }
    }

    fn read(&self, raw: &Raw, limit: u64) {
        let expected = raw.checked(Meant::Entry).and_then(|path| self.content(&path)).and_then(|content| {
            if content.len() as u64 > limit { Err(ErrorKind::TooLarge) } else { Ok(content) }
        });
        let got = match *NAIVE {
            true => fs::read(self.dir.join(raw.path()))
                .map_err(|_| expected.clone().err().unwrap_or(ErrorKind::Io)),
            false => kinds(self.root.read_contained(raw.path(), limit)),
        };
        assert_eq!(got, expected, "read {raw:?}");
        if let Ok(followed) = kinds(self.scene.follower.read_contained(raw.path(), 999)) {
            assert_ne!(followed, MARKER, "followed {raw:?} out");
        }
    }

    fn describe(&self, raw: &Raw) {
        let expected = raw.checked(Meant::DirectoryOrRoot).and_then(|path| {
            if path.as_os_str().is_empty() || raw.0.ends_with(b"/") {
                return self.tree.reach(&path).map(|()| (true, false, false));
            }
            self.tree.parent(&path)?;
            match self.tree.get(&path)? {
                Node::Link => Err(ErrorKind::Symlink),
                node => Ok((*node == Node::Dir, matches!(node, Node::File(_)), *node == Node::Fifo)),
            }
        });
        let got = kinds(self.root.metadata(raw.path()))
            .map(|entry| (entry.is_dir(), entry.is_file(), entry.file_type() == beneath::FileType::Fifo));
        assert_eq!(got, expected, "metadata {raw:?}");
    }

    fn list(&self, raw: &Raw) {
        let expected = raw.checked(Meant::DirectoryOrRoot).and_then(|path| {
            self.tree.reach(&path)?;
            Ok(self
                .tree
                .children(&path)
                .iter()
                .filter_map(|child| child.file_name().map(PathBuf::from))
                .collect())
        });
        let got: Result<BTreeSet<PathBuf>, _> = kinds(self.root.list(raw.path()))
            .map(|list| list.map(|entry| entry.unwrap().into_path()).collect());
        assert_eq!(got, expected, "list {raw:?}");
    }

    fn rename(&mut self, from: &Raw, to: &Raw) {
        let ends = from.checked(Meant::Entry).and_then(|old| Ok((old, to.checked(Meant::Entry)?)));
        let expected = ends.and_then(|(old, new)| self.tree.renamed(&old, &new).map(|()| (old, new)));
        let got = kinds(self.root.rename(from.path(), to.path()));
        assert_eq!(got, expected.as_ref().map(drop).map_err(|kind| *kind), "rename {from:?} {to:?}");
        if let Ok((old, new)) = expected {
            let taken = self.tree.take(&old);
            self.tree.give(&new, taken);
        }
    }

    fn removed(&mut self, raw: &Raw, got: Result<beneath::Removed, ErrorKind>) {
        let expected = raw.checked(Meant::Directory).and_then(|path| self.tree.reach(&path).map(|()| path));
        match (got, expected) {
            (Ok(removed), Ok(path)) => {
                let gone = self.tree.take(&path);
                let dirs = gone.iter().filter(|(_, node)| *node == Node::Dir).count() as u64;
                assert!(removed.is_complete(), "remove {raw:?}: {removed:?}");
                assert_eq!(
                    (removed.directories, removed.files),
                    (dirs, gone.len() as u64 - dirs),
                    "remove {raw:?}"
                );
            }
            (got, expected) => assert_eq!(got.map(drop), expected.map(drop), "remove {raw:?}"),
        }
    }

    /// By plain calls on paths that hold no link.
    fn mutate(&mut self, mutation: Mutation, from: &Path, to: &Path) {
        let (tree, real) = (&mut self.tree, |path: &Path| self.dir.join(path));
        let free = tree.get(to).is_err();
        match (mutation, tree.get(from).ok().cloned()) {
            (Mutation::MakeDir, _) if free => {
                fs::create_dir(real(to)).unwrap();
                tree.nodes.insert(to.to_path_buf(), Node::Dir);
            }
            (Mutation::WriteFile(byte), _) if free => {
                fs::write(real(to), content(byte)).unwrap();
                tree.put_file(to, &content(byte));
            }
            (Mutation::LinkOut(text), _) if free => {
                let outside = self.scene.dir.join("outside");
                let texts = ["a", ".", "..", "../outside", "../../outside/a", "b/a", "nowhere"];
                match texts.get(usize::from(text) % 8) {
                    Some(text) => symlink(text, real(to)).unwrap(),
                    None => symlink(outside.join("sub"), real(to)).unwrap(),
                }
                tree.nodes.insert(to.to_path_buf(), Node::Link);
            }
            (Mutation::HardLink, Some(Node::File(file))) if free => {
                fs::hard_link(real(from), real(to)).unwrap();
                tree.nodes.insert(to.to_path_buf(), Node::File(file));
            }
            (Mutation::HardLinkSecret, _) if free => {
                fs::hard_link(self.scene.dir.join(SECRET_FILE), real(to)).unwrap();
                tree.nodes.insert(to.to_path_buf(), Node::File(SECRET));
            }
            (Mutation::Fifo, _) if free => {
                mknodat(CWD, real(to), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
                tree.nodes.insert(to.to_path_buf(), Node::Fifo);
            }
            (Mutation::Rename, Some(_)) if free && !to.starts_with(from) => {
                fs::rename(real(from), real(to)).unwrap();
                let taken = tree.take(from);
                tree.give(to, taken);
            }
            (Mutation::Exchange, Some(_)) if !free && !to.starts_with(from) && !from.starts_with(to) => {
                renameat_with(CWD, real(from), CWD, real(to), RenameFlags::EXCHANGE).unwrap();
                let (left, right) = (tree.take(from), tree.take(to));
                tree.give(to, left);
                tree.give(from, right);
            }
            (Mutation::Unlink, Some(node)) if node != Node::Dir => {
                fs::remove_file(real(from)).unwrap();
                tree.take(from);
            }
            _ => {}
        }
    }

    /// The whole tree, seen by the walk and by plain calls.
    fn compare(&self) {
        let walked: BTreeSet<_> = self
            .root
            .walk(".", WalkLimits::default())
            .unwrap()
            .map(|entry| entry.unwrap().into_path())
            .collect();
        assert_eq!(walked, self.tree.nodes.keys().cloned().collect());
        for (path, node) in &self.tree.nodes {
            let real = self.dir.join(path);
            match node {
                Node::File(file) => self.compare_file(&real, *file),
                Node::Dir => assert!(fs::symlink_metadata(&real).unwrap().is_dir(), "{path:?}"),
                Node::Link => assert!(fs::symlink_metadata(&real).unwrap().is_symlink(), "{path:?}"),
                Node::Fifo => {
                    assert!(fs::symlink_metadata(&real).unwrap().file_type().is_fifo(), "{path:?}");
                }
            }
        }
    }

    fn compare_file(&self, real: &Path, file: usize) {
        let opened =
            rustix::fs::open(real, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::empty())
                .unwrap();
        let opened = File::from(opened);
        let entry = opened.metadata().unwrap();
        assert!(entry.is_file(), "{real:?}");
        assert_eq!(entry.nlink() as usize, self.tree.names(file), "{real:?}");
        let mut bytes = [0; 256];
        let length = opened.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..length], self.tree.contents[file], "{real:?}");
    }

    /// Removes all there is, with the operations under test.
    fn clear(&mut self) {
        let top: Vec<PathBuf> = self.tree.children(Path::new("")).into_iter().collect();
        for path in top {
            let raw = Raw(path.as_os_str().as_bytes().to_vec());
            let step = if self.tree.nodes[&path] == Node::Dir {
                Step::RemoveTree(raw)
            } else {
                Step::RemoveFile(raw)
            };
            self.take(&step);
        }
        assert!(self.tree.nodes.is_empty(), "{:?}", self.tree);
    }
}

/// Some bytes: few or as many as a buffer of the crate holds.
fn content(byte: u8) -> Vec<u8> {
    vec![byte; usize::from(byte)]
}
