//! Circumstances that a test arranges: other users and limits, kernels that can do less, mounts, huge trees, a server of lies.

pub mod bwrap;
pub mod child;
pub mod fuse;
pub mod namespace;
pub mod seccomp;
pub mod tree;
pub mod watchdog;
