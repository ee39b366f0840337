//! A file system that a guest serves: answers as the script says, however absurd.
//!
//! Speaks the protocol of `/dev/fuse` by hand, since what a library refuses to send is what is wanted here.

use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Nodes from here on are files, those below directories. The root is 1.
pub const FILE: u64 = 1 << 32;
pub const ROOT: u64 = 1;

/// An entry of a directory as a listing shows it, which need not be true.
pub type Shown = (Vec<u8>, FileType);

/// What the server answers. Each call has a default: an empty directory in which nothing can be done.
pub trait Script: Send + 'static {
    fn lookup(&mut self, _parent: u64, _name: &[u8]) -> Result<u64, Errno> {
        Err(Errno::NOENT)
    }
    /// The batch at an offset, which counts the entries before it; an empty one is the end.
    fn list(&mut self, _dir: u64, _offset: u64) -> Vec<Shown> {
        Vec::new()
    }
    fn describe(&mut self, _node: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn unlink(&mut self, _parent: u64, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::PERM)
    }
    fn remove_dir(&mut self, _parent: u64, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::PERM)
    }
    fn rename(&mut self) -> Result<(), Errno> {
        Err(Errno::XDEV)
    }
}

/// A mounted server; it stops, and every call that waits for it fails, when this goes.
#[derive(Debug)]
pub struct Served {
    point: tempfile::TempDir,
    answers: Arc<AtomicU64>,
}

impl Served {
    /// Mounts the script's file system; none where this user may not, or the kernel has no FUSE.
    pub fn mount(script: impl Script) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let point = tempfile::tempdir().unwrap();
        let options =
            format!("fd={},rootmode=40000,user_id=0,group_id=0,max_read=131072", device.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount("beneath-test", point.path(), "fuse", MountFlags::empty(), options.as_c_str()).ok()?;
        let served = Self { point, answers: Arc::default() };
        let answers = served.answers.clone();
        std::thread::spawn(move || serve(device, script, &answers));
        Some(served)
    }

    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// How many requests were answered so far.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // By force: the kernel fails whatever waits and whatever comes, the server's own read included.
        let _ = unmount(self.point.path(), UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

fn serve(mut device: File, mut script: impl Script, answers: &AtomicU64) {
    let mut request = vec![0; 256 << 10];
    loop {
        let length = match device.read(&mut request) {
            Ok(length) => length,
            // ENOENT: the caller was killed before the request was taken. Others: unmounted.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(_) => return,
        };
        let request = Request(&request[..length]);
        let Some(outcome) = answer(&request, &mut script) else { continue };
        let (errno, body) =
            outcome.map_or_else(|errno| (-errno.raw_os_error(), Vec::new()), |body| (0, body));
        let length = 16 + u32::try_from(body.len()).unwrap();
        let head = [length.to_ne_bytes(), errno.to_ne_bytes()].concat();
        let reply = [head, request.u64(8).to_ne_bytes().to_vec(), body].concat();
        answers.fetch_add(1, Ordering::Relaxed);
        // The caller may be gone.
        let _ = device.write_all(&reply);
    }
}

/// A header of 40 bytes, then what the operation brings.
struct Request<'a>(&'a [u8]);

impl Request<'_> {
    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn name(&self) -> &[u8] {
        self.0[40..].split(|byte| *byte == 0).next().unwrap()
    }
}

/// None for requests that want no answer.
fn answer(request: &Request<'_>, script: &mut impl Script) -> Option<Result<Vec<u8>, Errno>> {
    let node = request.u64(16);
    Some(match request.u32(4) {
        // FORGET, INTERRUPT, BATCH_FORGET
        2 | 36 | 42 => return None,
        // INIT: version 7.31 and nothing else
        26 => {
            Ok([7_u32, 31, 0, 0, 0, 128 << 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0].map(u32::to_ne_bytes).concat())
        }
        // LOOKUP, never to be cached
        1 => script.lookup(node, request.name()).map(|found| {
            let mut entry = [found, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
            entry.extend(attributes(found));
            entry
        }),
        // GETATTR, SETATTR
        3 | 4 => script.describe(node).map(|()| [vec![0; 16], attributes(node)].concat()),
        // OPENDIR, RELEASEDIR, OPEN, RELEASE, FLUSH, ACCESS
        27 | 29 | 14 | 18 | 25 | 34 => Ok(vec![0; if matches!(request.u32(4), 27 | 14) { 16 } else { 0 }]),
        // READDIR
        28 => {
            let (offset, size) = (request.u64(48), request.u32(56) as usize);
            Ok(listing(&script.list(node, offset), offset, size))
        }
        10 => script.unlink(node, request.name()).map(|()| Vec::new()),
        11 => script.remove_dir(node, request.name()).map(|()| Vec::new()),
        // RENAME, RENAME2
        12 | 45 => script.rename().map(|()| Vec::new()),
        _ => Err(Errno::NOSYS),
    })
}

fn attributes(node: u64) -> Vec<u8> {
    let (kind, links) = if node < FILE { (0o040_700, 2) } else { (0o100_600, 1) };
    let mut bytes = [node, 0, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
    bytes.extend([0, 0, 0, kind, links, 0, 0, 0, 4096, 0_u32].map(u32::to_ne_bytes).concat());
    bytes
}

/// As many of `entries` as the kernel has room for.
fn listing(entries: &[Shown], offset: u64, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (next, (name, kind)) in (offset + 1..).zip(entries) {
        let mut entry = [next, next].map(u64::to_ne_bytes).concat();
        let kind = kind.as_raw_mode() >> 12;
        entry.extend([u32::try_from(name.len()).unwrap(), kind].map(u32::to_ne_bytes).concat());
        entry.extend(name);
        entry.resize(entry.len().next_multiple_of(8), 0);
        if bytes.len() + entry.len() > size {
            break;
        }
        bytes.extend(entry);
    }
    bytes
}
