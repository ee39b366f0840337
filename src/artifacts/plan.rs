//! What a call would do.

use sha2::{Digest as _, Sha256};

use super::Artifacts;
use super::options::{Deletions, SyncOptions};
use super::remote::{Contents, Found};
use super::report::Side;
use super::state::Planned;
use super::sync::{Turn, Writes};
use crate::error::Result;
use crate::name::GuestPath;
use crate::report::Leftovers;
use crate::tree::{Act, Leaf, OnConflict, Plan, Rules, plan};

/// What a [`sync`](Artifacts::sync) would do, as far as that can be said before an object is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use]
#[non_exhaustive]
pub struct SyncPlan {
    /// What the workspace would get.
    pub take: Vec<GuestPath>,
    /// What it would lose.
    pub remove: Vec<GuestPath>,
    /// What the store would get.
    pub put: Vec<GuestPath>,
    /// What it would lose.
    pub delete: Vec<GuestPath>,
    /// What both sides have changed. If the content is the same it is no conflict.
    pub conflicts: Vec<GuestPath>,
    /// Deletions and replacements that would be held back, on either side. An object that was put again with the same bytes may make
    /// it look as if nothing were as it was.
    pub held: Vec<GuestPath>,
    /// What would be refused.
    pub left: Leftovers,
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
        let Turn { base, local, remote, report, .. } = self.begin(options, Writes::HereOnly).await?;
        // Until it is read, an object that has changed is like nothing that anybody knows.
        let contents: Contents = remote
            .changed(&base, |_| None)
            .into_iter()
            .map(|Planned { path, size, version, .. }| {
                let sha256 = Sha256::digest(format!("{size} {version:?}")).into();
                let leaf = Leaf::File { bytes: size, sha256, execute: false };
                (path, Found { leaf, version, mode: None })
            })
            .collect();
        let (was, there) = (base.tree(Side::Here), remote.tree(&base, &contents));
        let keeps = options.deletions == Deletions::Keep;
        let holds = |_: &GuestPath| keeps || remote.is_empty();
        let on_conflict = OnConflict::KeepTarget;
        let rules = Rules { on_conflict, guard: options.guard(), hold: &holds, waiting: &[] };
        let hide = |path: &GuestPath| keeps || local.may_hide(base.get(path));
        let pull = plan(&was, &local.tree, &there, rules);
        let sent = base.tree(Side::There);
        let push = plan(&sent, &there, &local.tree, Rules { hold: &hide, ..rules });
        let mut planned = SyncPlan { left: report.left, ..SyncPlan::default() };
        (planned.take, planned.remove) = split(&pull);
        (planned.put, planned.delete) = split(&push);
        planned.conflicts = pull.conflicts.iter().map(|(path, _)| (*path).clone()).collect();
        planned.held = pull.held.iter().chain(&push.held).map(|path| (*path).clone()).collect();
        Ok(planned)
    }
}

/// What arrives and what goes.
fn split(plan: &Plan<'_>) -> (Vec<GuestPath>, Vec<GuestPath>) {
    let (mut comes, mut goes) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        match step.act {
            Act::Put { .. } => comes.push(step.path.clone()),
            Act::Remove(_) => goes.push(step.path.clone()),
            _ => {}
        }
    }
    (comes, goes)
}
