//! The clouds by raw keys: listing, reading and removing without a path type in between.
//!
//! Problem: a store's own listing turns each key into a path. A key that is no path ends the listing, and `/abs` and
//! `dir/` come out as `abs` and `dir`, which are other objects.
//!
//! Defence: requests of our own, with the endpoint, credentials and HTTP client of the store. What they have in common is here, and
//! what a cloud has of its own is in one file that implements [`Cloud`].
//!
//! What remains: a URL cannot hold a `.` or `..` segment, in any spelling, so such a key is listed but not read.

mod bucket;
mod client;
mod clock;
mod cloud;
mod delete;
mod list;
mod marker;
#[cfg(any(feature = "aws", feature = "gcp"))]
mod page;
mod read;
mod xml;

pub(crate) use bucket::Bucket;
#[cfg(feature = "aws")]
pub(crate) use bucket::More;
#[cfg(feature = "aws")]
pub(crate) use client::{QUERY, Raw, malformed, read_body, refusal, request};
pub(crate) use client::{Shared, is_set, once, signed_place, unbuilt};
pub(crate) use cloud::{Cloud, Page};
#[cfg(all(fuzzing, feature = "aws"))]
pub use page::read_page;
#[cfg(any(feature = "aws", feature = "gcp"))]
pub(crate) use page::{list_type_2, parse};
pub(crate) use xml::Malformed;
#[cfg(feature = "aws")]
pub(crate) use xml::read as read_xml;
#[cfg(feature = "azure")]
pub(crate) use xml::read_with as read_xml_with;
