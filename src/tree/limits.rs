//! How much of a tree is looked at and taken in.

/// Bounds on what is brought from one side to the other. What is over them is refused on both sides.
///
/// Each is enforced on what really arrives; what a listing claims only lets a call refuse it early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLimits {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) depth: usize,
}

impl Default for ObjectLimits {
    /// 200,000 objects, 64 GiB in all, 8 GiB each, 32 levels.
    fn default() -> Self {
        Self { objects: 200_000, bytes: 64 << 30, file_bytes: 8 << 30, depth: 32 }
    }
}

impl ObjectLimits {
    /// Looks at no more than `objects` objects, good or bad. Of what is beyond them nothing is taken for absent.
    #[must_use]
    pub fn with_objects(mut self, objects: u64) -> Self {
        self.objects = objects;
        self
    }

    /// Refuses the objects that would bring their bytes together over `bytes`.
    #[must_use]
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Refuses an object of more than `bytes` bytes.
    #[must_use]
    pub fn with_file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// Refuses an object whose path has more than `depth` components.
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }
}
