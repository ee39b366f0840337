//! Directories of the host that a guest asks for, granted as handles.
//!
//! Problem: a guest, or the user behind it, names a directory of the host to be mounted. Services check the path as text, with
//! prefixes and patterns over the whole of it, and hand the path on. By the time that somebody mounts it, a component may be a
//! link to somewhere else.
//!
//! Defence: the check ends with the opened directory, looked up beneath the handle of its [`Base`] without links and without
//! leaving the mount, and everything after uses that handle. Names are compared component by component. The order of the checks
//! is fixed, and nothing is looked up before all that the text says was judged, so a [`Denial`] reveals nothing about the disk
//! to somebody who is not authorised. One denied request denies the set, and all denials are listed.
//!
//! What remains: a tool that takes a path resolves it again. Give it a descriptor where it takes one.
//!
//! | you want to | use |
//! |---|---|
//! | say what may be asked for | [`Base`], [`Rules`] |
//! | judge what is asked for | [`Rules::grant`] |
//! | read and write what was granted | [`Mounts::resolve`], [`Mount`] |
//! | mount it into a guest | [`Session::hand_over`](crate::Session::hand_over), [`Session::bwrap`](crate::Session::bwrap), [`Handover`] |
//! | see what the engine has mounted | [`Handover::verify_in`] |
//! | keep it for the next start | [`Mounts::save`], [`Mounts::load`] |
//!
//! ```
//! use beneath::mounts::{Base, Denial, Mode, Request, Rules};
//! use beneath::{Root, ambient_authority, safe_name};
//!
//! # let dir = tempfile::tempdir()?;
//! # std::fs::create_dir_all(dir.path().join("app/src"))?;
//! # std::fs::create_dir_all(dir.path().join("app/.ssh"))?;
//! let projects = Root::open_ambient(dir.path(), ambient_authority())?;
//! let rules = Rules::new().with_base(Base::new(safe_name("projects")?, projects).with_users(["ada"]));
//!
//! let source = Request { alias: "source", base: "projects", subpath: "app/src", mode: Mode::ReadOnly };
//! let mounts = rules.grant("ada", &[source])?;
//! assert_eq!(mounts.get("source").unwrap().mode(), Mode::ReadOnly);
//!
//! let keys = Request { alias: "keys", subpath: "app/.ssh", ..source };
//! let denials = rules.grant("ada", &[source, keys]).unwrap_err();
//! assert_eq!(denials.iter().collect::<Vec<_>>(), [(1, Denial::GlobalBlocked)]);
//! assert_eq!(Denial::GlobalBlocked.code(), "GLOBAL_BLOCKED");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Engines
//!
//! [`Session::hand_over`](crate::Session::hand_over) puts a whole guest together: the session's directories, its
//! [share](crate::Session::share) read-only, and what was granted.
//!
//! | engine | how | holds |
//! |---|---|---|
//! | bubblewrap 0.10, or Debian's 0.8.0 | descriptors, by [`Handover::bwrap`] | the very directory that was granted |
//! | an OCI runtime | [`Handover::oci`] in `config.json` | if no guest can rename the directories above |
//! | docker, podman | [`Handover::docker_args`], [`Handover::podman_args`] | likewise; never `-v`, in which a colon is a second option |
//! | systemd-nspawn | [`Handover::nspawn_args`] | likewise |
//!
//! Paths of the workspace itself that the host's calls must not change are
//! [`SessionsConfig::with_read_only`](crate::SessionsConfig::with_read_only). Storage that outlives a session is a [`Base`] with
//! [`Mode::ReadWrite`] that is asked for as any other: if it cannot be opened, the grant is denied, and nothing is put elsewhere.

mod base;
mod bwrap;
mod denial;
mod engine;
mod granted;
mod handover;
mod pattern;
mod record;
mod rules;

pub use base::{Base, Mode};
pub use bwrap::Bwrap;
pub use denial::{Denial, Denials};
pub use engine::OciMount;
pub use granted::{Mount, Mounts};
pub use handover::{Difference, Handover};
pub use pattern::NamePatterns;
pub use record::Loaded;
pub use rules::{Request, Rules};
