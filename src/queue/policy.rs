//! What a guest may ask for.
//!
//! Problem: a guest chooses the method, the path, the headers and the token of its request. A pattern such as `[^/]+` also matches
//! `..`, and what the host checks is not always what the handler behind it reads.
//!
//! Defence: a path is refused before it is matched, never repaired, and the handler gets the canonical form that was checked.
//! Headers are dropped unless they are allowed. Tokens are compared by their hashes.
//!
//! What remains: what a handler does with a captured segment is its own matter; the segment is text that a guest chose.

mod header;
mod route;
mod token;

pub use header::HeaderRules;
pub use route::{Allowed, Route, RouteDenial, Routes};
pub use token::Token;
