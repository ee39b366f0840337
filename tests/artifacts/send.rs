//! Every future of the public calls can move to another thread, and every report can be shared.

use std::sync::Arc;
use std::time::Duration;

use beneath::artifacts::{
    Artifacts, Bundle, Bundles, Change, Deletions, Diff, Ended, Event, Installed, Manifest, MirrorReport,
    Mirrored, OnLocal, Overwrites, Prefix, Put, RestoreReport, Restored, Snapshot, Source,
};
use beneath::{SafeName, SafePath};

use crate::support::{self, Home};

fn is_shared<T: Send + Sync + 'static>() {}

#[test]
fn reports_and_handles_are_send_and_sync() {
    is_shared::<RestoreReport>();
    is_shared::<Restored>();
    is_shared::<Ended>();
    is_shared::<MirrorReport>();
    is_shared::<Mirrored>();
    is_shared::<Put>();
    is_shared::<Installed>();
    is_shared::<Snapshot>();
    is_shared::<Diff>();
    is_shared::<Bundle>();
    is_shared::<Manifest>();
    is_shared::<Source>();
    is_shared::<Artifacts>();
    is_shared::<Bundles>();
    is_shared::<Event<'static>>();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_can_be_spawned() {
    let (home, source) = (Home::new(), support::memory());
    support::seed(&source, &[("a", b"1")]).await;
    let artifacts = Arc::new(home.artifacts(&source));
    let path = SafePath::new("b").unwrap();

    let (session, wanted) = (Arc::clone(&artifacts), path.clone());
    let calls = async move {
        let restored = session.restore(OnLocal::ColdStart).await.unwrap();
        let put = session.put(&wanted, "2").await.unwrap();
        let placed = session.materialise(&wanted, OnLocal::RemoteWins).await.unwrap();
        let mirrored = session.mirror(Deletions::Propagate, Overwrites::Refuse).await.unwrap();
        let diff = Diff::default();
        let again = session.mirror_diff(&diff, Deletions::Keep, Overwrites::Allow).await.unwrap();
        let signed = session.signed_url(&wanted, Duration::from_secs(1)).await;
        (restored, put, placed, mirrored, again, signed)
    };
    let (restored, put, placed, mirrored, again, signed) = tokio::spawn(calls).await.unwrap();
    assert!(restored.is_complete() && put.is_complete() && mirrored.is_complete() && again.is_complete());
    assert!(matches!(placed, Some(Restored::Placed { .. })) && signed.is_err());

    let calls = tokio::spawn(async move {
        let places = support::places_at(&home.path(""));
        let bundles = Bundles::new(source, Prefix::at(&SafePath::new("skills").unwrap()), places).unwrap();
        let (name, version) = (SafeName::new("pdf").unwrap(), SafeName::new("1").unwrap());
        let missing = bundles.bundle(&name, &version).await.is_err();
        let bundle = Bundle { name: name.clone(), version, manifest: Manifest::parse("").unwrap() };
        let first = bundles.install(&bundle).await.unwrap();
        let second = bundles.install_if_changed(&bundle).await.unwrap();
        let installed = bundles.installed(&name).await.unwrap();
        (missing, first, second, installed, bundles.remove(&name).await.unwrap())
    });
    let (missing, first, second, installed, removed) = calls.await.unwrap();
    assert!(missing && removed);
    assert_eq!((first.change, second.change), (Change::New, Change::Unchanged));
    assert_eq!(installed.as_deref(), Some("1"));
}
