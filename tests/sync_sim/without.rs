//! The rules that the engine of the test's own can do without.

/// A rule that is left out. The first are those of the findings, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// A2: what has a name that is not mirrored may be what is gone elsewhere.
    HiddenFiles,
    /// A3: the workspace is opened at each call.
    FreshHandle,
    /// A4: the base belongs to one directory.
    Directory,
    /// A5: only what was in the workspace is in the base.
    Placed,
    /// A6: what could not be read is unknown.
    Unknown,
    /// A7: a put is made on a condition.
    Conditions,
    /// A8: the base belongs to one bucket.
    Bucket,
    /// A9: what one side has deleted and the other changed is reported.
    Conflicts,
    /// A10: a file does not take the place of a directory.
    Kinds,
    /// A11: what is about to be destroyed is read.
    Reading,
    /// A12: a body that is shorter than its object is none.
    Sizes,
    /// A listing alone never destroys.
    Asking,
    /// What a guest writes during the call is seen.
    LookingAgain,
    /// What has moved is put before it is deleted.
    PutsFirst,
    /// There is a base at all.
    Base,
}

impl Without {
    pub(crate) const ALL: [Self; 15] = [
        Self::HiddenFiles,
        Self::FreshHandle,
        Self::Directory,
        Self::Placed,
        Self::Unknown,
        Self::Conditions,
        Self::Bucket,
        Self::Conflicts,
        Self::Kinds,
        Self::Reading,
        Self::Sizes,
        Self::Asking,
        Self::LookingAgain,
        Self::PutsFirst,
        Self::Base,
    ];

    /// The finding whose rule it is.
    pub(crate) fn finding(self) -> String {
        let position = Self::ALL.iter().position(|one| *one == self).unwrap();
        if position < 11 { format!("A{}", position + 2) } else { "–".to_owned() }
    }
}
