//! A guest that swaps directories for links while the host restores and mirrors.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use beneath::artifacts::conformance::{Attributes, Condition};
use beneath::artifacts::{Prefer, SyncOptions};
use futures_util::TryStreamExt as _;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{self, Home};

const DIRECTORIES: usize = 4;
const FILES: usize = 5;

/// Exchanges each directory with a link to the outside, again and again.
struct Guest {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Guest {
    fn new(home: &Home) -> Self {
        let workspace = home.path("workspace");
        let outside = home.path("outside");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        for n in 0..DIRECTORIES {
            symlink(&outside, workspace.join(format!("link{n}"))).unwrap();
        }
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::Relaxed) {
                for n in 0..DIRECTORIES {
                    let (a, b) = (workspace.join(format!("d{n}")), workspace.join(format!("link{n}")));
                    swaps += u64::from(renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).is_ok());
                }
            }
            swaps
        });
        Self { stop, thread: Some(thread) }
    }

    fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn paths() -> impl Iterator<Item = String> {
    (0..DIRECTORIES).flat_map(|d| (0..FILES).map(move |f| format!("d{d}/f{f}")))
}

fn escaped(home: &Home) -> usize {
    fs::read_dir(home.path("outside")).unwrap().count() - 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_never_writes_through_swapped_directories() {
    let source = support::memory();
    for path in paths() {
        support::put_object(&source, &path, b"object").await;
    }
    let (mut placed, mut refused) = (0, 0);
    for prefer in [Prefer::Local, Prefer::Remote] {
        let home = Home::new();
        let artifacts = home.artifacts(&source);
        for n in 0..DIRECTORIES {
            fs::create_dir(home.workspace(&format!("d{n}"))).unwrap();
        }
        let guest = Guest::new(&home);
        for _ in 0..200 {
            // Without a base, as after the loss of the host's state.
            let _ = fs::remove_dir_all(home.path("state"));
            let options = SyncOptions::default().with_prefer(prefer);
            let report = artifacts.pull(&options).await.unwrap();
            placed += report.placed;
            refused += report.left.total;
            for path in paths() {
                // Whichever of the two names the directory has just now.
                let _ = fs::remove_file(home.workspace(&path));
            }
        }
        let swaps = guest.stop();
        assert!(swaps > 1000, "{swaps}");
        home.assert_contained();
    }
    assert!(placed > 100, "placed {placed}");
    println!("restore: {placed} placed, {refused} refused, 0 escaped");

    // The control: check, then write by path.
    let home = Home::new();
    for n in 0..DIRECTORIES {
        fs::create_dir(home.workspace(&format!("d{n}"))).unwrap();
    }
    let guest = Guest::new(&home);
    let mut caught = 0;
    for round in 0..20_000 {
        for path in paths() {
            naive_write(&home.path("workspace"), &path);
        }
        caught = escaped(&home);
        if caught > 0 && round >= 10 {
            break;
        }
    }
    guest.stop();
    assert!(caught > 0, "the guest caught no naive write: the race is not one");
}

/// As the systems that this replaces do it: resolve, compare with the root, then use the path.
fn naive_write(root: &Path, path: &str) {
    if let Some(target) = naive_check(root, path) {
        let _ = fs::write(target, "object");
    }
}

/// Looks at every object, and removes them all with what the host knows of them, so that every file is uploaded again.
async fn begin_anew(home: &Home, source: &beneath::artifacts::Source) {
    for (path, content) in support::objects(source).await {
        // Of a link the text goes.
        let text = home.path("outside").into_os_string().into_encoded_bytes();
        assert!(content == b"public" || content.starts_with(&text), "{path}: {}", content.escape_ascii());
        support::delete_key(source, &format!("{}{path}", support::prefix())).await;
    }
    fs::remove_dir_all(home.path("state")).unwrap();
}

fn naive_check(root: &Path, path: &str) -> Option<PathBuf> {
    let target = root.join(path);
    let parent = target.parent()?;
    let real = parent.canonicalize().ok()?;
    real.starts_with(root.canonicalize().ok()?).then(|| target.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_never_uploads_from_outside() {
    let source = support::memory();
    let home = Home::new();
    for f in 0..FILES {
        fs::write(home.path("outside").join(format!("f{f}")), "SECRET").unwrap();
    }
    for path in paths() {
        fs::create_dir_all(home.workspace(&path).parent().unwrap()).unwrap();
        fs::write(home.workspace(&path), "public").unwrap();
    }
    let artifacts = home.artifacts(&source);
    let guest = Guest::new(&home);
    let (mut uploaded, mut refused) = (0, 0);
    for _ in 0..300 {
        let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
        uploaded += report.uploaded;
        refused += report.left.total;
        begin_anew(&home, &source).await;
    }
    assert!(uploaded > 20 && refused > 100, "uploaded {uploaded}, refused {refused}");
    println!("mirror: {uploaded} uploaded, {refused} refused, 0 from outside");

    // The control: check, then read by path.
    let mut caught = 0;
    for _ in 0..20_000 {
        for path in paths() {
            let target = naive_check(&home.path("workspace"), &path);
            caught +=
                u32::from(target.is_some_and(|target| fs::read(target).is_ok_and(|read| read == b"SECRET")));
        }
        if caught > 0 {
            break;
        }
    }
    guest.stop();
    assert!(caught > 0, "the guest caught no naive read: the race is not one");
}

/// In place of each file a second name of a host's file comes and goes. Whoever opens it then and counts the names later finds
/// one, which is the host's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_uploads_no_host_file_that_is_linked_for_an_instant() {
    let source = support::memory();
    let home = Home::new();
    let secret = home.path("outside").join("secret");
    fs::write(&secret, "SECRET").unwrap();
    let files: Vec<PathBuf> = (0..FILES).map(|f| home.workspace(&format!("f{f}"))).collect();
    files.iter().for_each(|file| fs::write(file, "public").unwrap());
    let artifacts = home.artifacts(&source);
    let stop = AtomicBool::new(false);
    let caught = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for file in &files {
                    let away = file.with_extension("away");
                    let _ = fs::rename(file, &away);
                    for _ in 0..16 {
                        let _ = fs::hard_link(&secret, file);
                        let _ = fs::remove_file(file);
                    }
                    let _ = fs::rename(&away, file);
                }
            }
        });
        let mut uploaded = 0;
        for _ in 0..400 {
            let options = SyncOptions::default();
            let mirror = artifacts.mirror(&options);
            let report =
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(mirror)).unwrap();
            uploaded += report.uploaded;
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(begin_anew(&home, &source));
            });
        }
        assert!(uploaded > 40, "uploaded {uploaded}");
        // The control: one open, then the count of names.
        let mut caught = 0;
        for _ in 0..200_000 {
            for file in &files {
                let Ok(mut opened) = fs::File::open(file) else { continue };
                if opened.metadata().is_ok_and(|meta| meta.nlink() == 1) {
                    let mut content = String::new();
                    caught += u32::from(opened.read_to_string(&mut content).is_ok() && content == "SECRET");
                }
            }
            if caught > 0 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        caught
    });
    assert!(caught > 0, "the guest caught no reader that counts: the race is not one");
}

/// Another host replaces the object again and again. Whoever took its version for that of the own content would overwrite it later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_that_a_put_returns_is_never_that_of_what_came_after_it() {
    let (home, source) = support::local();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let other = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            fs::write(home.join("draft"), "theirs").unwrap();
            fs::rename(home.join("draft"), home.join("a")).unwrap();
        }
    });
    let (store, mut wrong, mut put) = (source.backend(), 0, 0);
    for _ in 0..3000 {
        let version = store.put("a", "ours".into(), &Attributes::NONE, Condition::Always).await;
        // One that was replaced at once says so.
        let Ok(version) = version else { continue };
        put += 1;
        if let Ok(body) = store.get("a", version.as_deref()).await {
            let content = body.chunks.try_collect::<Vec<_>>().await.unwrap().concat();
            wrong += u32::from(content != b"ours");
        }
    }
    stop.store(true, Ordering::Relaxed);
    other.join().unwrap();
    assert!(put > 0 && wrong == 0, "{wrong} of {put} versions were those of another host");
}
