//! Requests and answers, and the JSON that carries them.
//!
//! Problem: a guest writes the envelope. It nests without end, repeats keys so that two parsers see different things, names
//! another request in it, forges header lines by a line break or a request line by a space, and declares something else as base64.
//!
//! Defence: the form is fixed, and whatever differs from it is refused with a [`Malformed`]: unknown and repeated keys, another
//! version, an id that is not that of the file, more headers than the limit, a query that is not visible ASCII or has a `#`.
//! Nesting is counted before anything is parsed. Nothing here touches the disk.
//!
//! What remains: path, query, header values and body are text that a guest chose. [`policy`](super::policy) judges the path and
//! the headers.
//!
//! ```json
//! {"v":1,"id":"7f3a","method":"POST","path":"/issues","query":"","headers":[["content-type","application/json"]],
//!  "encoding":"text","body":"{}"}
//! {"v":1,"id":"7f3a","status":201,"outcome":"done","headers":[],"encoding":"base64","body":"AAE="}
//! ```
//!
//! `query`, `headers`, `encoding`, `body` and `outcome` may be left out. With `"encoding":"file"` the body is the file
//! `<id>.body` beside the envelope, and `body` is left out.

mod body;
mod headers;
mod limits;
mod malformed;
mod message;
mod wire;

pub use body::Body;
pub(super) use body::BodyPlace;
pub use headers::Headers;
pub use limits::EnvelopeLimits;
pub use malformed::Malformed;
pub use message::{Outcome, Request, Response};
