//! From a listing to what will be written: every refusal is decided before the first byte is written.
//!
//! Problem: anybody who can write to the store chooses keys: outside the prefix, with dot segments, under reserved names,
//! twice, or one as the directory of another.
//!
//! Defence: each key is read by [`Prefix::path`] and becomes a path or one refusal. Of paths that clash all are refused,
//! so the order of the listing decides nothing.
//!
//! What remains: sizes and versions are the store's claims until the object arrives.

use futures_util::stream::{Stream, StreamExt as _};

use crate::artifacts::key::Prefix;
use crate::artifacts::state::Planned;
use crate::artifacts::store::Listed;
use crate::error::{Error, ErrorKind, Result};
use crate::name::SafePath;
use crate::tree::{ObjectLimits, Reserved, is_reserved};

const OPERATION: &str = "plan";

/// An object that may not, with its key as listed.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) raw: Vec<u8>,
    pub(super) error: Error,
}

/// What a restore will do, in the order of the paths' bytes.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) objects: Vec<Planned>,
    pub(super) refused: Vec<Refusal>,
    pub(super) bytes: u64,
}

impl Plan {
    /// Reads a listing to its end.
    ///
    /// Fails as a whole if the store cannot be listed, or if there are more objects or bytes than the limits allow:
    /// an arbitrary part would look like the whole.
    pub(super) async fn read(
        mut listing: impl Stream<Item = Result<Listed>> + Unpin,
        prefix: &Prefix,
        limits: &ObjectLimits,
        reserved: &Reserved,
    ) -> Result<Self> {
        let mut plan = Self::default();
        let mut seen: u64 = 0;
        while let Some(object) = listing.next().await {
            let object = object?;
            seen += 1;
            if seen > limits.objects {
                return Err(Error::new(OPERATION, prefix.as_str(), ErrorKind::TooMany)
                    .with_detail(format!("more than {} objects", limits.objects)));
            }
            match admit(&object, prefix, limits, reserved) {
                Ok(path) => {
                    let etag = object.etag.map(String::into_boxed_str);
                    plan.objects.push(Planned { path, size: object.size, etag });
                }
                Err(error) => plan.refuse(object.key, error),
            }
        }
        plan.objects.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        plan.refuse_clashes(prefix);
        plan.bytes = plan.objects.iter().fold(0, |sum, object| sum.saturating_add(object.size));
        if plan.bytes > limits.bytes {
            return Err(Error::new(OPERATION, prefix.as_str(), ErrorKind::TooLarge)
                .with_detail(format!("more than {} bytes in all", limits.bytes)));
        }
        Ok(plan)
    }

    fn refuse(&mut self, mut raw: Vec<u8>, error: Error) {
        // A key has no more than 1,024 bytes; a store that sends longer ones must not fill the report.
        raw.truncate(1024);
        self.refused.push(Refusal { raw, error });
    }

    /// Refuses paths that are there twice, and files where others need a directory.
    fn refuse_clashes(&mut self, prefix: &Prefix) {
        let objects = std::mem::take(&mut self.objects);
        let path_at = |index: usize| objects.get(index).map(|object| object.path.as_str());
        let mut reasons: Vec<(usize, ErrorKind, &'static str)> = Vec::new();
        for (index, object) in objects.iter().enumerate() {
            let here = Some(object.path.as_str());
            if path_at(index + 1) == here || (index > 0 && path_at(index - 1) == here) {
                reasons.push((index, ErrorKind::AlreadyExists, "path is listed more than once"));
                continue;
            }
            // All that lies beneath a directory is contiguous, and begins at the first path not before `path/`.
            let beneath = format!("{}/", object.path.as_str());
            let first = objects.partition_point(|other| other.path.as_str() < beneath.as_str());
            if path_at(first).is_some_and(|path| path.starts_with(&beneath)) {
                reasons.push((index, ErrorKind::NotRegular, "path is also the directory of another object"));
            }
        }
        let mut reasons = reasons.into_iter().peekable();
        for (index, object) in objects.into_iter().enumerate() {
            match reasons.next_if(|(refused, ..)| *refused == index) {
                Some((_, kind, detail)) => {
                    let raw = format!("{}{}", prefix.as_str(), object.path.as_str()).into_bytes();
                    let error = Error::new(OPERATION, &object.path, kind).with_detail(detail);
                    self.refuse(raw, error);
                }
                None => self.objects.push(object),
            }
        }
    }
}

fn admit(object: &Listed, prefix: &Prefix, limits: &ObjectLimits, reserved: &Reserved) -> Result<SafePath> {
    let path = prefix.path(&object.key)?;
    let refuse = |kind, detail: String| Err(Error::new(OPERATION, &path, kind).with_detail(detail));
    if is_reserved(&path, reserved) {
        return refuse(ErrorKind::InvalidPath, "top name is reserved".into());
    }
    if path.depth() > limits.depth {
        return refuse(ErrorKind::TooMany, format!("more than {} levels", limits.depth));
    }
    if object.size > limits.file_bytes {
        return refuse(ErrorKind::TooLarge, format!("more than {} bytes", limits.file_bytes));
    }
    Ok(path)
}

/// The kept paths with their sizes, and the refused keys with the reasons.
#[cfg(all(fuzzing, feature = "aws"))]
pub(super) type Shown = (Vec<(SafePath, u64)>, Vec<(Vec<u8>, Error)>);

/// Plans a listing of keys and sizes: for the fuzz targets alone.
#[cfg(all(fuzzing, feature = "aws"))]
#[allow(clippy::missing_errors_doc)]
pub fn plan(
    listing: Vec<(Vec<u8>, u64)>,
    prefix: &Prefix,
    limits: &ObjectLimits,
    reserved: &Reserved,
) -> Result<Shown> {
    use futures_util::{FutureExt as _, stream};
    let listed = |(key, size)| Ok(Listed { key, size, etag: None });
    let listing = stream::iter(listing.into_iter().map(listed));
    let plan = Plan::read(listing, prefix, limits, reserved)
        .now_or_never()
        .unwrap_or_else(|| Ok(Plan::default()))?;
    let kept = plan.objects.into_iter().map(|object| (object.path, object.size));
    let refused = plan.refused.into_iter().map(|refusal| (refusal.raw, refusal.error));
    Ok((kept.collect(), refused.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::SafeName;
    use futures_util::{FutureExt as _, stream};

    fn plan(keys: &[&str], limits: ObjectLimits) -> Result<Plan> {
        let objects: Vec<_> = keys
            .iter()
            .map(|key| Ok(Listed { key: format!("p/{key}").into_bytes(), size: 10, etag: None }))
            .collect();
        let prefix = Prefix::at(&SafePath::new("p").unwrap());
        let reserved = [SafeName::new("skills").unwrap()];
        Plan::read(stream::iter(objects), &prefix, &limits, &reserved).now_or_never().unwrap()
    }

    fn kept(plan: &Plan) -> Vec<&str> {
        plan.objects.iter().map(|object| object.path.as_str()).collect()
    }

    #[test]
    fn duplicates_and_files_in_place_of_directories_are_refused() {
        let plan = plan(
            &["a/b", "a", "a-b", "x", "x", "y/z/1", "y/z", "é", "e\u{301}", "A"],
            ObjectLimits::default(),
        );
        let plan = plan.unwrap();
        assert_eq!(kept(&plan), ["A", "a-b", "a/b", "e\u{301}", "y/z/1", "é"]);
        let refused: Vec<_> = plan.refused.iter().map(|refusal| refusal.raw.as_slice()).collect();
        assert_eq!(refused, [b"p/a".as_slice(), b"p/x", b"p/x", b"p/y/z"]);
    }

    #[test]
    fn reserved_top_names_are_refused_in_any_case() {
        let plan =
            plan(&["skills/x", "Skills/x", "sub/skills/x", "skillset"], ObjectLimits::default()).unwrap();
        assert_eq!(kept(&plan), ["skillset", "sub/skills/x"]);
        assert_eq!(plan.refused.len(), 2);
        let path = |raw| SafePath::new(raw).unwrap();
        for (top, reserved) in [("\u{17f}kills", "skills"), ("s\u{212a}ills", "skills"), ("k", "\u{212a}")] {
            assert!(is_reserved(&path(top), &[SafeName::new(reserved).unwrap()]), "{top} is {reserved}");
        }
    }

    #[test]
    fn limits_on_depth_and_file_refuse_one_object_and_limits_in_all_refuse_the_restore() {
        let limits = ObjectLimits::default();
        assert_eq!(kept(&plan(&["a/b/c", "d"], limits.with_depth(2)).unwrap()), ["d"]);
        assert!(kept(&plan(&["a"], limits.with_file_bytes(9)).unwrap()).is_empty());
        assert_eq!(plan(&["a", "b"], limits.with_objects(1)).unwrap_err().kind(), ErrorKind::TooMany);
        assert_eq!(plan(&["a", "b"], limits.with_bytes(19)).unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
