//! What this host was about to put and to delete when it was last heard of.
//!
//! Problem: a host that dies forgets what it has done, and then takes its own object, or its own deletion, for another host's.
//!
//! Defence: a hash is noted before each put, and a deletion before it is made; both are removed when the base knows. Like the
//! base, the notes belong to one store and one directory: in another directory the file that was put was never seen to be
//! deleted.
//!
//! What remains: another host that puts the very same content is taken for this one, which changes nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::binding::Binding;
use super::lines;
use super::version::unhex;
use crate::artifacts::disk::forget;
use crate::entropy::hex;
use crate::error::Result;
use crate::name::GuestPath;
use crate::root::Root;
use crate::tree::{Digest, decode_path, encode_path};

/// In place of a hash: a deletion. No content has this hash that anybody could find.
const GONE: Digest = [0; 32];

/// The hashes of what was about to be put, by path.
#[derive(Debug)]
pub(crate) struct Intents {
    binding: Binding,
    earlier: HashMap<GuestPath, Vec<Digest>>,
    now: Mutex<(std::fs::File, Vec<(GuestPath, Digest)>)>,
}

impl Intents {
    pub(crate) fn open(state: &Root, binding: &Binding) -> Result<Self> {
        let file = binding.intents_file();
        let mut earlier: HashMap<GuestPath, Vec<Digest>> = HashMap::new();
        let mut lines = lines::read(state, &file)?.into_iter().flatten().map_while(Result::ok);
        if lines.next().is_some_and(|first| first == binding.line()) {
            for line in lines {
                let Some((digest, path)) = line.split_once(' ') else { continue };
                if let (Some(digest), Some(path)) = (unhex(digest), decode_path(path)) {
                    earlier.entry(path).or_default().push(digest);
                }
            }
        } else {
            state.replace(&file, format!("{}\n", binding.line()))?;
        }
        let (file, binding) = (lines::append(state, &file)?, binding.clone());
        Ok(Self { binding, earlier, now: Mutex::new((file, Vec::new())) })
    }

    pub(crate) fn of(&self, path: &GuestPath) -> &[Digest] {
        self.earlier.get(path).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn note(&self, path: &GuestPath, digest: &Digest) -> Result<()> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.1.push((path.clone(), *digest));
        lines::write(&mut now.0, &self.binding.intents_file(), &line(path, digest))
    }

    /// Notes that the objects at `paths` are about to be deleted.
    pub(crate) fn note_deletions<'a>(&self, paths: impl Iterator<Item = &'a GuestPath>) -> Result<()> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = String::new();
        for path in paths {
            now.1.push((path.clone(), GONE));
            lines.push_str(&line(path, &GONE));
        }
        lines::write(&mut now.0, &self.binding.intents_file(), &lines)
    }

    /// Whether all calls that came before have ended, and nothing of them is in doubt.
    pub(crate) fn is_empty(&self) -> bool {
        self.earlier.is_empty()
    }

    /// What was about to be deleted.
    pub(crate) fn deleted(&self) -> impl Iterator<Item = &GuestPath> {
        self.earlier.iter().filter(|(_, digests)| digests.contains(&GONE)).map(|(path, _)| path)
    }

    /// Forgets what concerns `paths`, which the base has now: what another host puts there later is not this host's.
    pub(crate) fn settle(&mut self, state: &Root, paths: &[GuestPath]) -> Result<()> {
        if paths.is_empty() {
            return Ok(());
        }
        paths.iter().for_each(|path| drop(self.earlier.remove(path)));
        self.write(state)?;
        let now = self.now.get_mut().unwrap_or_else(PoisonError::into_inner);
        now.0 = lines::append(state, &self.binding.intents_file())?;
        let again: String = now.1.iter().map(|(path, digest)| line(path, digest)).collect();
        lines::write(&mut now.0, &self.binding.intents_file(), &again)
    }

    /// Forgets all but what concerns paths that are `kept`, once the base has the rest. Nothing is noted after it.
    pub(crate) fn keep(&mut self, state: &Root, kept: impl Fn(&GuestPath) -> bool) -> Result<()> {
        let now = std::mem::take(&mut self.now.get_mut().unwrap_or_else(PoisonError::into_inner).1);
        for (path, digest) in now {
            self.earlier.entry(path).or_default().push(digest);
        }
        self.earlier.retain(|path, _| kept(path));
        match self.earlier.is_empty() {
            true => forget(state, self.binding.intents_file()),
            false => self.write(state),
        }
    }

    fn write(&self, state: &Root) -> Result<()> {
        let lines = self
            .earlier
            .iter()
            .flat_map(|(path, digests)| digests.iter().map(move |digest| line(path, digest)));
        state.replace(
            self.binding.intents_file(),
            format!("{}\n{}", self.binding.line(), lines.collect::<String>()),
        )
    }
}

fn line(path: &GuestPath, digest: &Digest) -> String {
    format!("{} {}\n", hex(*digest), encode_path(path))
}
