//! Every future of the public calls can move to another thread, and every report can be shared.

use std::sync::Arc;
use std::time::Duration;

use beneath::artifacts::{
    Artifacts, Bundle, Bundles, Change, Diff, Event, Held, Installed, Manifest, Prefix, Put, Snapshot,
    Source, SyncOptions, SyncPlan, SyncReport, Take, Unsent,
};
use beneath::{GuestPath, SafeName, SafePath};

use crate::support::{self, Home};

fn is_shared<T: Send + Sync + 'static>() {}

#[test]
fn reports_and_handles_are_send_and_sync() {
    is_shared::<SyncReport>();
    is_shared::<SyncPlan>();
    is_shared::<Unsent>();
    is_shared::<Held>();
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
    let path = GuestPath::new("b").unwrap();

    let (session, wanted) = (Arc::clone(&artifacts), path.clone());
    let calls = async move {
        let options = SyncOptions::default();
        let restored = session.restore().await.unwrap();
        let put = session.put(&wanted, "2").await.unwrap();
        let placed = session.materialise(&wanted, &options).await.unwrap();
        let reports = [
            restored,
            session.mirror(&options).await.unwrap(),
            session.pull(&options).await.unwrap(),
            session.sync(&options).await.unwrap(),
        ];
        let plan = session.plan(&options).await.unwrap();
        let resolved = session.resolve(&wanted, Take::Both).await.unwrap();
        let signed = session.signed_url(&wanted, Duration::from_secs(1)).await;
        (reports, put, placed, plan, resolved, signed)
    };
    let (reports, put, placed, plan, resolved, signed) = tokio::spawn(calls).await.unwrap();
    assert!(reports.iter().all(SyncReport::is_complete) && put.is_complete(), "{reports:?}");
    assert!(placed.is_some() && !resolved && signed.is_err());
    assert_eq!(plan, SyncPlan::default());

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
