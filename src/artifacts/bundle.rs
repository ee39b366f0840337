//! Code and documents of a set version, such as skills: staged, checked, and swapped in by one step.
//!
//! Problem: a host that downloads into the place where a guest can write, follows the links that the guest has put
//! there. One that stops half-way leaves files of two versions, and takes them for one.
//!
//! Defence: a version is fetched into the host's own staging and checked against a manifest of hashes before
//! anything is touched. One exchange of two names puts it in place and takes the old one, whatever it is by then, out of
//! the guest's reach, where it stays for as long as it may be read. What is installed is judged by its hashes, not by a note that
//! says so.
//!
//! What remains: if the area is the guest's to write, the guest can change what is installed at any time. Keep the area
//! outside, and let the guest read it.

mod area;
mod install;
mod made;
mod manifest;
mod slot;

pub use area::{InstalledBundle, OpenBundle};
pub use install::{Bundles, Change, Installed};
pub use manifest::{Bundle, Manifest};
