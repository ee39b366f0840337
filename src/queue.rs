//! Requests of a guest that the host answers.
//!
//! [`policy`] decides what a guest may ask for: which routes, with which headers, with which token. It is pure, so it serves a
//! queue of files and a socket alike.

pub mod policy;
