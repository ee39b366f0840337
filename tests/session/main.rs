//! The session layer, by area. Each flaw of the systems it replaces is a test that a plain port fails (`naive`) and this
//! crate passes.
#![cfg(feature = "session")]
#![allow(missing_docs, reason = "a test binary has no interface")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test says where")]

mod access;
mod clock;
mod collect;
mod database;
#[cfg(feature = "tracing")]
mod events;
mod flaws_inbox;
mod flaws_later;
mod flaws_outbox;
mod flaws_tools;
mod flaws_tree;
mod hot_journal;
mod image;
mod in_place;
mod inbound;
mod inbox;
mod lifetime;
mod marker;
mod merge;
#[cfg(feature = "json")]
mod message;
#[cfg(feature = "json")]
mod message_bounds;
mod message_limits;
mod mounts;
mod outbox;
mod outbox_names;
#[cfg(feature = "patterns")]
mod patterns;
mod places;
mod protocol;
mod reports;
mod sessions;
mod settings;
mod share;
mod support;
mod tail;
mod threads;
mod types;
mod watch;
mod workspace;
mod workspace_links;
mod workspace_list;
mod workspace_rules;
mod workspace_verbs;

use beneath_kit::naive::session as naive;
