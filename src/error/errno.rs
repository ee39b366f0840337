//! The one table from errno to kind.

use rustix::io::Errno;

use super::kind::ErrorKind;

impl ErrorKind {
    /// The kind an errno means when nothing more is known about the call.
    pub(crate) fn of(errno: Errno) -> Self {
        meaning(errno).0
    }
}

/// What an errno means when nothing more is known about the call, and how to say it if the kind's own words mislead.
pub(super) fn meaning(errno: Errno) -> (ErrorKind, Option<&'static str>) {
    use ErrorKind as Kind;
    match errno {
        Errno::LOOP => (Kind::Symlink, None),
        Errno::ISDIR | Errno::NXIO | Errno::NODEV => (Kind::NotRegular, None),
        Errno::NOTDIR => (Kind::NotDirectory, None),
        Errno::EXIST | Errno::NOTEMPTY => (Kind::AlreadyExists, None),
        Errno::NOENT => (Kind::NotFound, None),
        Errno::FBIG => (Kind::TooLarge, None),
        Errno::MLINK => {
            (Kind::TooMany, Some("has as many names or sub-directories as the file system takes"))
        }
        Errno::MFILE | Errno::NFILE => (Kind::TooMany, Some("no descriptor is left")),
        Errno::NOMEM => (Kind::TooMany, Some("out of memory")),
        Errno::NAMETOOLONG => (Kind::InvalidPath, None),
        Errno::XDEV => (Kind::CrossDevice, None),
        Errno::ACCESS | Errno::PERM => (Kind::Denied, None),
        Errno::NOSPC | Errno::DQUOT => (Kind::NoSpace, None),
        Errno::ROFS => (Kind::ReadOnly, None),
        Errno::AGAIN | Errno::BUSY | Errno::TXTBSY => (Kind::Busy, None),
        Errno::NOSYS | Errno::OPNOTSUPP => (Kind::Unsupported, None),
        Errno::INVAL => (Kind::Unsupported, Some("the kernel or file system does not take the call")),
        // Say, an owner that is not mapped on this mount.
        Errno::OVERFLOW => {
            (Kind::Unsupported, Some("has an owner, size or time that cannot be represented here"))
        }
        _ => (Kind::Io, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_that_a_caller_can_act_on_has_its_kind() {
        let cases: [(ErrorKind, &[Errno]); 14] = [
            (ErrorKind::Symlink, &[Errno::LOOP]),
            (ErrorKind::NotRegular, &[Errno::ISDIR, Errno::NXIO, Errno::NODEV]),
            (ErrorKind::NotDirectory, &[Errno::NOTDIR]),
            (ErrorKind::AlreadyExists, &[Errno::EXIST, Errno::NOTEMPTY]),
            (ErrorKind::NotFound, &[Errno::NOENT]),
            (ErrorKind::TooLarge, &[Errno::FBIG]),
            (ErrorKind::TooMany, &[Errno::MFILE, Errno::NFILE, Errno::MLINK, Errno::NOMEM]),
            (ErrorKind::InvalidPath, &[Errno::NAMETOOLONG]),
            (ErrorKind::CrossDevice, &[Errno::XDEV]),
            (ErrorKind::Denied, &[Errno::ACCESS, Errno::PERM]),
            (ErrorKind::NoSpace, &[Errno::NOSPC, Errno::DQUOT]),
            (ErrorKind::ReadOnly, &[Errno::ROFS]),
            (ErrorKind::Busy, &[Errno::AGAIN, Errno::BUSY, Errno::TXTBSY]),
            (ErrorKind::Unsupported, &[Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL, Errno::OVERFLOW]),
        ];
        for (kind, errnos) in cases {
            for errno in errnos {
                assert_eq!(ErrorKind::of(*errno), kind, "{errno}");
            }
        }
        assert_eq!(ErrorKind::of(Errno::IO), ErrorKind::Io);
    }
}
