//! A local directory as a store, by names that nobody has rewritten.
//!
//! Problem: a [`LocalFileSystem`] ends its listing at the first name that is not text or has a control character,
//! takes no name that ends in `#` and digits, and follows links.
//!
//! Defence: the directory is held by a [`Root`]. It is walked by raw names, so that one bad name is one refusal, and
//! files are opened beneath it, links never.
//!
//! Modes, times, links and directories are kept as they are. An empty directory is listed as a key that ends in `/`.
//!
//! What remains: whoever else writes to the directory can change a file in place, and a file takes the place of another
//! after a comparison, not in one step with it.
//!
//! [`LocalFileSystem`]: https://docs.rs/object_store/latest/object_store/local/struct.LocalFileSystem.html

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use rustix::fs::fstatvfs;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, mpsc};

use super::attributes::{Attributes, Kind};
use super::backend::{Abilities, Backend, Compares, Conditions, Parts};
use super::error::changed;
use super::object::{Body, Condition, Head, Listed};
use super::retry::Retry;
use crate::artifacts::disk::{blocking, forget};
use crate::entropy::{hex, unguessable};
use crate::error::{Error, ErrorKind, Result};
use crate::root::{ContainedFile, Entry, Metadata, NewFile, Rename, Root, WalkLimits, WriteOptions};

/// Most entries of one listing, directories included.
const ENTRIES: u64 = 10_000_000;
const CHUNK: u64 = 256 << 10;
/// How often a directory may go that a file is about to be in.
const TRIES: u32 = 8;
/// What is held in memory of one object that is written.
const PART: u64 = 8 << 20;

/// The directory.
#[derive(Debug)]
pub(super) struct Local(Arc<Root>);

impl Local {
    pub(super) fn new(root: Root) -> Self {
        Self(Arc::new(root))
    }

    /// Runs `work` on the directory and the path of `key`, where it may block.
    fn on<'a, T: Send + 'static>(
        &self,
        operation: &'static str,
        key: &str,
        work: impl FnOnce(Arc<Root>, String) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'a, Result<T>> {
        let (root, path) = (Arc::clone(&self.0), key.to_owned());
        blocking(operation, move || work(root, path)).boxed()
    }
}

impl Backend for Local {
    fn abilities(&self) -> Abilities {
        // A name is linked only if it is free, in one step; no call compares a file and replaces it.
        let conditions = Conditions { absent: Compares::InOneStep, unchanged: Compares::Never };
        Abilities {
            put: conditions,
            complete: conditions,
            delete: Compares::Never,
            delete_many: Compares::Never,
            bulk: 1,
            whole: PART,
            part: PART,
            parts: u64::MAX,
            repeats: false,
            raw_keys: true,
            attributes: true,
            markers: true,
            content_etags: false,
            signs: false,
        }
    }

    fn identity(&self) -> String {
        match self.0.metadata(".") {
            // Not by the number of the device, which is another one after a reboot.
            Ok(top) => {
                let system = fstatvfs(self.0.as_fd()).map_or(0, |system| system.f_fsid);
                format!("directory {system:x}:{}:{:?}", top.ino(), top.created())
            }
            Err(_) => "directory".to_owned(),
        }
    }

    /// Lists what lies under `prefix`, which ends in `/`.
    fn list(&self, prefix: &str, _: Retry) -> BoxStream<'static, Result<Listed>> {
        let (root, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        let (sender, receiver) = mpsc::channel(256);
        let walking = async move {
            let failed = sender.clone();
            // The receiver is gone when nobody reads the listing any more.
            if let Err(error) = blocking("list", move || walk(&root, &prefix, &sender)).await {
                let _ = failed.send(Err(error)).await;
            }
        };
        let listed = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|item| (item, receiver))
        });
        let walking = stream::once(walking).filter_map(|()| std::future::ready(None::<Result<Listed>>));
        stream::select(listed, walking).boxed()
    }

    fn get<'a>(&'a self, key: &'a str, etag: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        async move {
            let (found, content) = self.on("get", key, |root, path| open(&root, &path)).await?;
            if etag.is_some_and(|wanted| found.etag.as_deref() != Some(wanted)) {
                return Err(changed("get", key));
            }
            let (size, key) = (found.size, key.to_owned());
            let chunks = match content {
                Content::Text(text) => stream::once(std::future::ready(Ok(Bytes::from(text)))).boxed(),
                Content::File(file) => stream::try_unfold((file.take(size), key), |(mut file, key)| {
                    blocking("get", move || {
                        let mut chunk = Vec::new();
                        let read = file.by_ref().take(CHUNK).read_to_end(&mut chunk);
                        read.map_err(|error| Error::new("get", &key, ErrorKind::Io).with_source(error))?;
                        Ok(match chunk.is_empty() {
                            true => None,
                            false => Some((Bytes::from(chunk), (file, key))),
                        })
                    })
                })
                .boxed(),
            };
            Ok(Body { size: Some(size), etag: found.etag, attributes: found.attributes, chunks })
        }
        .boxed()
    }

    // A file can be written to between two calls without a trace in its version: the whole is read again.
    fn rest<'a>(&'a self, _: &'a str, _: &'a str, _: u64) -> BoxFuture<'a, Result<Option<Body>>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Head>>> {
        self.on("head", key, |root, path| match open(&root, &path) {
            Ok((found, _)) => Ok(Some(found)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        content: Bytes,
        attributes: &'a Attributes,
        condition: Condition<'a>,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        if let Condition::Unchanged(_) = condition {
            let error = Error::new("put", key, ErrorKind::Unsupported)
                .with_detail("a directory does not compare and put in one step");
            return std::future::ready(Err(error)).boxed();
        }
        let (absent, attributes) = (condition == Condition::Absent, attributes.clone());
        self.on("put", key, move |root, path| match attributes.kind {
            Kind::File | Kind::Link if path.ends_with('/') => Err(no_marker(&path)),
            Kind::Directory => root.ensure_dir(path.trim_end_matches('/')).map(|_| None),
            Kind::Link => put_link(&root, &path, &content, absent),
            Kind::File => {
                let mut draft = Draft::new(&root, path, attributes)?;
                draft.write(&content)?;
                draft.publish(absent)
            }
        })
    }

    fn begin<'a>(
        &'a self,
        key: &'a str,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Box<dyn Parts>>> {
        let attributes = attributes.clone();
        self.on("put", key, |root, path| {
            let draft = Mutex::new(Some(Draft::new(&root, path, attributes)?));
            Ok(Box::new(Upload(draft)) as Box<dyn Parts>)
        })
    }

    // A file without a name is gone with the process that made it.
    fn abort<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        self.on("delete", key, |root, path| {
            match path.strip_suffix('/') {
                None => forget(&root, &path)?,
                Some(directory) => match root.remove_dir(directory) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    removed => removed?,
                },
            }
            // What is left empty is no object unless somebody says so afterwards.
            let above = std::iter::successors(Path::new(&path).parent(), |path| path.parent());
            for directory in above.filter(|path| !path.as_os_str().is_empty()) {
                if root.remove_dir(directory).is_err() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn sign<'a>(&'a self, key: &'a str, _: Duration, _: Option<&'a str>) -> BoxFuture<'a, Result<String>> {
        let error =
            Error::new("sign", key, ErrorKind::Unsupported).with_detail("the store does not sign URLs");
        std::future::ready(Err(error)).boxed()
    }
}

/// A draft that is written part by part; none only after a call that was given up.
#[derive(Debug)]
struct Upload(Mutex<Option<Draft>>);

impl Upload {
    /// Works on the draft where that may block.
    async fn on<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Draft) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut slot = self.0.lock().await;
        let Some(mut draft) = slot.take() else {
            return Err(Error::new("put", ".", ErrorKind::Io).with_detail("given up half-way"));
        };
        let (draft, result) = blocking("put", move || {
            let result = work(&mut draft);
            Ok((draft, result))
        })
        .await?;
        *slot = Some(draft);
        result
    }
}

impl Parts for Upload {
    fn id(&self) -> Option<&str> {
        None
    }

    fn put(&self, part: Bytes) -> BoxFuture<'_, Result<()>> {
        self.on(move |draft| draft.write(&part)).boxed()
    }

    fn complete<'a>(&'a self, condition: Condition<'a>) -> BoxFuture<'a, Result<Option<String>>> {
        let absent = condition == Condition::Absent;
        self.on(move |draft| draft.publish(absent)).boxed()
    }

    // A file without a name is gone with its handle.
    fn abort(&self) -> BoxFuture<'_, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// A file on its way, unnamed until it is published.
#[derive(Debug)]
struct Draft {
    path: String,
    file: Option<NewFile>,
}

impl Draft {
    fn new(root: &Root, path: String, attributes: Attributes) -> Result<Self> {
        let options = WriteOptions::default().over_read_only();
        let options = attributes.mode.map_or(options, |mode| options.with_mode(mode));
        let mut tries = 0;
        let file = loop {
            if let Some((parent, _)) = path.rsplit_once('/') {
                root.ensure_dir(parent)?;
            }
            match root.new_file_with(&path, options) {
                // Another call has just removed the directory, since it was empty.
                Err(error) if error.kind() == ErrorKind::NotFound && tries < TRIES => tries += 1,
                file => break file?,
            }
        };
        let file = match attributes.modified {
            Some(time) => file.with_modified(time),
            None => file,
        };
        Ok(Self { path, file: Some(file) })
    }

    fn write(&mut self, part: &[u8]) -> Result<()> {
        let failed = |error| Error::new("put", &self.path, ErrorKind::Io).with_source(error);
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(part)).map_err(failed)
    }

    /// Gives the file its name, with `absent` only if that is free, and returns its version.
    fn publish(&mut self, absent: bool) -> Result<Option<String>> {
        let leaf = self.path.rsplit('/').next().unwrap_or_default();
        // Of the file itself: what has its name by now may be another host's, and then so is its version.
        let file = match self.file.take() {
            Some(mut file) if absent => {
                if let Err(error) = file.commit_as(leaf) {
                    self.file = Some(file);
                    return Err(error);
                }
                file.seen()?
            }
            Some(file) => file.commit_replace_seen()?,
            None => return Err(Error::new("put", &self.path, ErrorKind::Io).with_detail("is published")),
        };
        Ok(Some(version(&file)))
    }
}

fn walk(root: &Root, prefix: &str, sender: &mpsc::Sender<Result<Listed>>) -> Result<()> {
    let entries = match root.walk(prefix.trim_end_matches('/'), WalkLimits::default().with_entries(ENTRIES)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let marker = |path: &Path, size| {
        let key = [prefix.as_bytes(), path.as_os_str().as_bytes(), b"/"].concat();
        Listed { key, size, etag: None, put_at: None }
    };
    // It comes right before what it contains, so it is empty if something else follows.
    let mut directory: Option<PathBuf> = None;
    for (seen, entry) in entries.enumerate() {
        let path = match &entry {
            Ok(entry) => entry.path().to_path_buf(),
            Err(error) => error.subject().unwrap_or("".as_ref()).to_path_buf(),
        };
        let empty = directory.take().filter(|directory| !path.starts_with(directory));
        let object = match entry {
            Ok(entry) if entry.metadata().is_dir() => {
                directory = Some(path);
                None
            }
            Ok(entry) => Some(listed(root, prefix, &entry)),
            // An arbitrary part would look like the whole.
            Err(error) if seen as u64 >= ENTRIES => return Err(error),
            // A directory that cannot be entered is one with content: one refusal.
            Err(_) => Some(marker(&path, 1)),
        };
        let empty = empty.map(|directory| marker(&directory, 0));
        for object in empty.into_iter().chain(object) {
            if sender.blocking_send(Ok(object)).is_err() {
                return Ok(());
            }
        }
    }
    if let Some(directory) = directory {
        // Nobody may listen any more.
        let _ = sender.blocking_send(Ok(marker(&directory, 0)));
    }
    Ok(())
}

fn no_marker(key: &str) -> Error {
    Error::new("put", key, ErrorKind::InvalidPath).with_detail("a key that ends in a slash is a directory")
}

fn listed(root: &Root, prefix: &str, entry: &Entry) -> Listed {
    let key = [prefix.as_bytes(), entry.path().as_os_str().as_bytes()].concat();
    let metadata = entry.metadata();
    let etag = match metadata.is_symlink() {
        // What has gone meanwhile has no version that anybody could ask for.
        true => {
            let path = Path::new(std::ffi::OsStr::from_bytes(&key));
            root.read_link(path).ok().map(|text| version_of_link(text.as_os_str().as_bytes()))
        }
        false => Some(version(metadata)),
    };
    Listed { key, size: metadata.len(), etag, put_at: None }
}

/// What a file, a link or a directory contains.
enum Content {
    File(ContainedFile),
    Text(Vec<u8>),
}

/// What is at `path`, and what it says of itself.
fn open(root: &Root, path: &str) -> Result<(Head, Content)> {
    if let Some(directory) = path.strip_suffix('/') {
        let metadata = root.metadata(directory)?;
        if !metadata.is_dir() {
            return Err(Error::new("head", path, ErrorKind::NotFound));
        }
        let kind = Kind::Directory;
        let attributes = Attributes { kind, mode: Some(metadata.mode() & 0o777), ..Attributes::default() };
        return Ok((Head { size: 0, etag: None, attributes }, Content::Text(Vec::new())));
    }
    let file = match root.open_contained(path) {
        Err(error) if error.kind() == ErrorKind::Symlink => {
            let text = root.read_link(path)?.into_os_string().into_vec();
            let attributes = Attributes { kind: Kind::Link, ..Attributes::default() };
            let (size, etag) = (text.len() as u64, Some(version_of_link(&text)));
            return Ok((Head { size, etag, attributes }, Content::Text(text)));
        }
        // It is no object, and may be a directory of others.
        Err(_) if root.metadata(path).is_ok_and(|found| found.is_dir()) => {
            return Err(Error::new("get", path, ErrorKind::NotFound));
        }
        file => file?,
    };
    let metadata = file.metadata();
    let (mode, modified) = (Some(metadata.mode() & 0o777), Some(metadata.modified()));
    let attributes = Attributes { mode, modified, ..Attributes::default() };
    let (size, etag) = (metadata.len(), Some(version(metadata)));
    Ok((Head { size, etag, attributes }, Content::File(file)))
}

/// Makes a link in one step, in place of what is there unless that is to be `absent`.
fn put_link(root: &Root, path: &str, text: &[u8], absent: bool) -> Result<Option<String>> {
    if let Some((parent, _)) = path.rsplit_once('/') {
        root.ensure_dir(parent)?;
    }
    let target = Path::new(std::ffi::OsStr::from_bytes(text));
    match root.symlink(target, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !absent => {
            let name = unguessable().map_err(|errno| Error::from_errno("put", path, errno))?;
            // As long as a name may be, whatever that of the link.
            let directory = path.rsplit_once('/').map_or(String::new(), |(parent, _)| format!("{parent}/"));
            let draft = format!("{directory}.beneath-{name}");
            root.symlink(target, &draft)?;
            root.rename_with(&draft, root, path, Rename::Replace).inspect_err(|_| {
                // The first failure is the one to report.
                let _ = root.remove_file(&draft);
            })?;
        }
        made => made?,
    }
    Ok(Some(version_of_link(text)))
}

fn version_of_link(text: &[u8]) -> String {
    format!("\"link-{}\"", hex(Sha256::digest(text).into_iter().take(16)))
}

/// The version of a file. Its last change is the kernel's word, and not that of whoever has put it.
fn version(metadata: &Metadata) -> String {
    let changed = metadata.changed().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("\"{:x}-{changed:x}-{:x}\"", metadata.ino(), metadata.len())
}
