//! What a call would do.

use std::path::Path;

use super::Artifacts;
use super::options::{Deletions, Prefer, SyncOptions};
use super::report::Side;
use super::sync::{Turn, Writes};
use crate::error::{Error, Result};
use crate::name::GuestPath;
use crate::report::Leftovers;
use crate::tree::{Act, Leaf, Measure, OnConflict, Plan, Rules, Why, plan};

/// What a [`sync`](Artifacts::sync) would do, as far as that can be said before an object is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use]
#[non_exhaustive]
pub struct SyncPlan {
    /// The objects that the workspace would get, under their names or, in a conflict, beside them.
    pub take: Vec<GuestPath>,
    /// The files that it would lose.
    pub remove: Vec<GuestPath>,
    /// The files that the store would get. What a conflict puts beside another name is sent as well.
    pub put: Vec<GuestPath>,
    /// The objects that it would lose.
    pub delete: Vec<GuestPath>,
    /// What both sides have changed. If the content is the same it is no conflict.
    pub conflicts: Vec<GuestPath>,
    /// Deletions and replacements that would be held back, on either side. An object that was put again with the same bytes may make
    /// it look as if nothing were as it was.
    pub held: Vec<GuestPath>,
    /// What would be refused.
    pub left: Leftovers,
}

impl SyncPlan {
    /// Whether both sides would hold the same afterwards, as far as that can be said before anything is done.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.held.is_empty() && self.left.is_empty()
    }

    /// What would be refused, and why: the first of [`left`](Self::left).
    pub fn refused(&self) -> impl Iterator<Item = (&Path, &Error)> {
        self.left.iter()
    }
}

impl Artifacts {
    /// Looks at both sides and says what a [`sync`](Self::sync) would do. Nothing is transferred and nothing is changed.
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    ///
    /// # Races
    /// Both sides may change before anything is done.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use beneath::artifacts::{Artifacts, Prefix, Source, SyncOptions};
    /// # use beneath::{GuestPath, Root, SessionId, Sessions, SessionsConfig, ambient_authority};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let home = tempfile::tempdir()?;
    /// # let sessions = Sessions::new(Root::open_ambient(home.path(), ambient_authority())?, SessionsConfig::default());
    /// # let (session, _) = sessions.create(&SessionId::new("s1"))?;
    /// # let source = Source::memory(Arc::new(object_store::memory::InMemory::new()));
    /// # let artifacts = Artifacts::new(source, Prefix::session(&SessionId::new("s1")), &session);
    /// session.workspace().write_exclusive("report.txt", "done")?;
    /// let plan = artifacts.plan(&SyncOptions::default()).await?;
    /// assert_eq!(plan.put, [GuestPath::new("report.txt")?]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn plan(&self, options: &SyncOptions) -> Result<SyncPlan> {
        let mut turn = self.begin(options, Writes::HereOnly).await?;
        turn.contents = turn.remote.guesses(&turn.base);
        let Turn { base, local, remote, contents, report, .. } = &turn;
        let (was, there) = (base.tree(Side::Here), remote.tree(base, contents));
        let keeps = options.deletions == Deletions::Keep;
        let holds = |_: &GuestPath| keeps;
        let measure = Measure { fewest: remote.fewest(), ..options.measure() };
        let (on_conflict, guard) = (options.on_conflict(), options.guard());
        let pull = plan(&was, &local.tree, &there, Rules { on_conflict, guard, hold: &holds, measure });
        let sent = base.tree(Side::There);
        let hide = |path: &GuestPath| keeps || local.may_hide(base.get(path));
        let (on_conflict, measure) = (OnConflict::KeepTarget, options.measure());
        let push = plan(&sent, &there, &local.tree, Rules { on_conflict, guard, hold: &hide, measure });
        let mut planned = SyncPlan { left: report.left.clone(), ..SyncPlan::default() };
        (planned.take, planned.remove) = split(&pull);
        (planned.put, planned.delete) = split(&push);
        // Of two versions that both stay, ours is sent over theirs, and one that has no object any more is sent anew.
        let is_sent = |(path, why): &&(&GuestPath, Why)| {
            let stays = options.prefer == Prefer::Local || *why == Why::DeletedHere;
            stays && local.tree.get(path).is_some_and(|leaf| *leaf != Leaf::Directory)
        };
        planned.put.extend(push.conflicts.iter().filter(is_sent).map(|(path, _)| (*path).clone()));
        planned.put.extend(turn.modes(&there).cloned());
        planned.put.sort();
        planned.conflicts = pull.conflicts.iter().map(|(path, _)| (*path).clone()).collect();
        planned.held = pull.held.iter().chain(&push.held).map(|path| (*path).clone()).collect();
        Ok(planned)
    }
}

/// What arrives and what goes, but for directories.
fn split(plan: &Plan<'_>) -> (Vec<GuestPath>, Vec<GuestPath>) {
    let (mut comes, mut goes) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        match step.act {
            Act::Put { .. } | Act::PutBeside(_) => comes.push(step.path.clone()),
            Act::Remove(_) => goes.push(step.path.clone()),
            Act::Aside(_) | Act::RemoveDirectory | Act::MakeDirectory => {}
        }
    }
    (comes, goes)
}
