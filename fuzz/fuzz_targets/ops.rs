//! Operations of the host between mutations by a guest, against a tree in memory: same answers, same tree, and a canary
//! outside that nothing touches.
#![no_main]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use beneath::{ErrorKind, HardLinks, Links, Policy, ResolverChoice, Root, ambient_authority};
use beneath_kit::canary::Canary;
use beneath_kit::env;
use beneath_kit::model::{Meant, Model, Mutation, Node, checked};
use beneath_kit::operations::{MOST, OPERATIONS, Task, operation};
use libfuzzer_sys::fuzz_target;

const MARKER: &[u8] = b"SECRET of the host";
const SECRET_FILE: &str = "outside/a";
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
        Path::new(OsStr::from_bytes(&self.0))
    }
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// An operation, by its place in the table, with the other end of a rename and a byte to write.
    Host(u8, Raw, Raw, u8),
    /// A read with a limit, and what a host that reads by path gets.
    Read(Raw, u8),
    /// A read beneath a directory.
    Descend(Raw, Raw),
    /// What a guest does to its own tree.
    Guest(u8, Raw, Raw, u8),
    /// A new file that is written and not committed.
    Abandon(Raw, u8),
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
    /// The directory itself, and what is beside the tree and the quarantine.
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
    let follower = open("root", &refuse.clone().with_links(Links::FollowBeneath));
    let quarantine = open("quarantine", &Policy::default());
    // A guest may give the secret a second name; by the end of its input that name is gone.
    let canary = Canary::pin_all_but(&["root", "quarantine"], dir.clone(), Some(SECRET_FILE)).unwrap();
    // The kernel's clock for files ticks every few milliseconds, and the next change must not fall into this tick.
    thread::sleep(Duration::from_millis(50));
    Scene { roots, follower, quarantine, canary, dir }
});

/// Reads by path and follows links, to show that the comparison would notice: `BENEATH_FUZZ_NAIVE=1` must crash at once.
static NAIVE: LazyLock<bool> = LazyLock::new(|| env::FUZZ_NAIVE.is_set());

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
    let root = &scene.roots[usize::from(input.walk)][usize::from(input.allow_hard_links)];
    let model = Model::new(MARKER, root.policy().hard_links());
    let mut run = Run { scene, dir: scene.dir.join("root"), root, model };
    for step in input.steps.iter().take(STEPS) {
        run.take(step);
    }
    run.model.compare(root, &run.dir);
    run.clear();
    assert_eq!(scene.canary.corrupted(), None);
    // The canary leaves this to the guest, whose names for it are gone by now.
    assert_eq!(fs::metadata(scene.dir.join(SECRET_FILE)).unwrap().nlink(), 1);
});

struct Run<'a> {
    scene: &'a Scene,
    dir: PathBuf,
    root: &'a Root,
    model: Model,
}

impl Run<'_> {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Host(number, path, other, byte) => {
                let operation = &OPERATIONS[usize::from(*number) % OPERATIONS.len()];
                if *NAIVE && operation.opens_files {
                    return self.read(path, MOST);
                }
                let between_roots = operation.calls("rename_to") || operation.calls("copy_to");
                let other = if between_roots { Path::new("moved") } else { other.path() };
                self.host(operation.name, path.path(), other, &content(*byte));
            }
            Step::Read(raw, limit) => self.read(raw, u64::from(*limit)),
            Step::Descend(raw, inner) => self.descend(raw, inner),
            Step::Abandon(raw, byte) => self.model.abandon(self.root, raw.path(), &content(*byte)),
            Step::Guest(number, from, to, byte) => {
                let mutation = Mutation::ALL[usize::from(*number) % Mutation::ALL.len()];
                if let (Ok(from), Ok(to)) = (checked(&from.0, Meant::Entry), checked(&to.0, Meant::Entry)) {
                    let secret = self.scene.dir.join(SECRET_FILE);
                    self.model.mutate(mutation, &self.dir, &secret, &from, &to, *byte);
                }
            }
        }
    }

    fn host(&mut self, name: &str, path: &Path, other: &Path, data: &[u8]) {
        let host = &self.scene.quarantine;
        self.model.agree(operation(name), &Task { root: self.root, path, data, host, other });
        // What was moved there would be in the way of the next.
        for left in fs::read_dir(self.scene.dir.join("quarantine")).unwrap() {
            let path = left.unwrap().path();
            assert!(path.ends_with("moved"), "{path:?} is left");
            fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).unwrap();
        }
    }

    fn read(&self, raw: &Raw, limit: u64) {
        let expected = checked(&raw.0, Meant::Entry)
            .and_then(|path| self.model.content(&path).map(<[u8]>::to_vec))
            .and_then(|content| match content.len() as u64 > limit {
                true => Err(ErrorKind::TooLarge),
                false => Ok(content),
            });
        let got = match *NAIVE {
            // Whatever it is that a link leads to; a FIFO would hang the control.
            true => Some(self.dir.join(raw.path()))
                .filter(|path| path.is_file())
                .and_then(|path| fs::read(path).ok())
                .ok_or(expected.clone().err().unwrap_or(ErrorKind::Io)),
            false => kinds(self.root.read_contained(raw.path(), limit)),
        };
        assert_eq!(got, expected, "read {raw:?}");
        if let Ok(followed) = kinds(self.scene.follower.read_contained(raw.path(), 999)) {
            assert_ne!(followed, MARKER, "followed {raw:?} out");
        }
    }

    fn descend(&self, raw: &Raw, inner: &Raw) {
        let expected =
            checked(&raw.0, Meant::DirectoryOrRoot).and_then(|path| self.model.reach(&path).map(|()| path));
        let got = kinds(self.root.descend(raw.path()));
        assert_eq!(got.as_ref().map(drop), expected.as_ref().map(drop), "descend {raw:?}");
        if let (Ok(narrow), Ok(path)) = (got, expected) {
            let expected = checked(&inner.0, Meant::Entry)
                .and_then(|inner| self.model.content(&path.join(inner)).map(<[u8]>::to_vec));
            assert_eq!(kinds(narrow.read_contained(inner.path(), 999)), expected, "{raw:?} {inner:?}");
        }
    }

    /// Removes all there is, with the operations under test.
    fn clear(&mut self) {
        while let Some((path, node)) = self.model.nodes.first_key_value() {
            let name = if *node == Node::Dir { "remove_tree_contained" } else { "remove_file" };
            self.host(name, &path.clone(), Path::new("moved"), b"");
        }
    }
}

fn kinds<T>(result: beneath::Result<T>) -> Result<T, ErrorKind> {
    result.map_err(|error| error.kind())
}

/// Some bytes: few or as many as a buffer of the crate holds.
fn content(byte: u8) -> Vec<u8> {
    vec![byte; usize::from(byte)]
}
