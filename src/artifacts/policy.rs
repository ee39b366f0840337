//! What a caller decides about files and objects that are there already.

/// What a restore does about files that are already in the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLocal {
    /// Restores only into a workspace that is empty, reserved names aside, or where a restore was interrupted.
    ColdStart,
    /// Leaves what is there, and brings only what is not.
    LocalWins,
    /// Puts the object in place of what is there.
    RemoteWins,
    /// Brings nothing if anything is there that an object would replace.
    Fail,
}

impl OnLocal {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ColdStart => "cold-start",
            Self::LocalWins => "local-wins",
            Self::RemoteWins => "remote-wins",
            Self::Fail => "fail",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::ColdStart, Self::LocalWins, Self::RemoteWins, Self::Fail]
            .into_iter()
            .find(|policy| policy.word() == word)
    }
}

/// What a mirror does about objects whose file is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletions {
    /// Leaves them.
    Keep,
    /// Removes those that this session restored or mirrored and that nobody has changed since.
    ///
    /// Stores do not delete on a condition: the object is compared right before, and what another host puts between the
    /// two is removed.
    Propagate,
}

/// What a mirror does about objects that another host has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrites {
    /// Leaves them, and reports a conflict.
    ///
    /// The store itself compares and puts in one step, if it can; [which can](super#conditions) differs for large
    /// objects. Elsewhere the object is compared right before, and what another host puts between the two is overwritten.
    Refuse,
    /// Overwrites them.
    Allow,
}
