//! How much an envelope may bring.

/// Bounds on the content of an envelope; the size of the whole is bounded by whoever reads it.
///
/// ```
/// use beneath::queue::EnvelopeLimits;
///
/// let limits = EnvelopeLimits::default().with_headers(16);
/// assert_eq!((limits.headers(), limits.header_bytes()), (16, 16 << 10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeLimits {
    depth: usize,
    headers: usize,
    header_bytes: usize,
}

impl Default for EnvelopeLimits {
    /// 32 levels, 64 headers, 16 KiB of them.
    fn default() -> Self {
        Self { depth: 32, headers: 64, header_bytes: 16 << 10 }
    }
}

impl EnvelopeLimits {
    /// Bounds how deep the JSON is nested.
    #[must_use]
    pub const fn with_depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// Bounds the number of headers.
    #[must_use]
    pub const fn with_headers(mut self, headers: usize) -> Self {
        self.headers = headers;
        self
    }

    /// Bounds the names and values of all headers together.
    #[must_use]
    pub const fn with_header_bytes(mut self, bytes: usize) -> Self {
        self.header_bytes = bytes;
        self
    }

    /// How deep the JSON may be nested.
    #[must_use]
    pub const fn depth(self) -> usize {
        self.depth
    }

    /// How many headers there may be.
    #[must_use]
    pub const fn headers(self) -> usize {
        self.headers
    }

    /// How many bytes their names and values may have.
    #[must_use]
    pub const fn header_bytes(self) -> usize {
        self.header_bytes
    }
}
