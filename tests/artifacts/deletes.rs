//! Deletions: on a condition where the server keeps it, many in one request, each with an outcome of its own.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use beneath::artifacts::{Artifacts, Source, SyncOptions, SyncReport, Why};

use crate::bucket::{Act, Answer, Ask, Bucket, Request};
use crate::servers;
use crate::support::{self, Home};

async fn mirror(artifacts: &Artifacts) -> SyncReport {
    artifacts.mirror(&SyncOptions::default()).await.unwrap()
}

/// A home whose `kept` and `doomed` files are in the store, and then has no more of the second.
async fn deleted(source: &Source, kept: usize, doomed: usize) -> (Home, Artifacts) {
    let home = Home::new();
    let artifacts = home.artifacts(source);
    let names = |home: &Home, name: &str, count| -> Vec<_> {
        (0..count).map(|n| home.workspace(&format!("{name}{n}"))).collect()
    };
    for path in names(&home, "kept", kept).iter().chain(&names(&home, "doomed", doomed)) {
        fs::write(path, path.as_os_str().as_encoded_bytes()).unwrap();
    }
    let report = mirror(&artifacts).await;
    assert_eq!(report.uploaded, (kept + doomed) as u64, "{report:?}");
    names(&home, "doomed", doomed).iter().for_each(|path| fs::remove_file(path).unwrap());
    (home, artifacts)
}

#[tokio::test]
async fn thousand_objects_go_in_one_request_that_names_their_versions() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    let (_home, artifacts) = deleted(&bucket.source(), 1300, 1200).await;
    let heads = bucket.asked(Ask::Head);
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.deleted == 1200 && report.unconditional == 0, "{report:?}");
    assert_eq!((bucket.asked(Ask::Delete), bucket.asked(Ask::Head)), (2, heads));
    assert_eq!(bucket.keys().len(), 1300);
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.deleted == 0, "the base knows: {report:?}");
}

#[tokio::test]
async fn object_that_another_host_has_changed_meanwhile_stays_and_is_reported() {
    // Another host puts it after the second listing.
    let judge = |request: &Request, count| match request.ask {
        Ask::List if count == 1 => Act::ServeAndPlant("doomed1"),
        _ => Act::Serve,
    };
    for careless in [false, true] {
        let mut bucket = Bucket::new(judge);
        if careless {
            bucket = bucket.careless();
        }
        let (_home, artifacts) = deleted(&bucket.source(), 5, 3).await;
        let report = mirror(&artifacts).await;
        assert_eq!((report.deleted, report.conflicts.len()), (2, 1), "{careless}: {report:?}");
        assert_eq!(report.conflicts[0].why, Why::DeletedHere);
        assert_eq!(report.unconditional, if careless { 2 } else { 0 });
        assert_eq!(bucket.object("doomed1").unwrap(), b"planted");
    }
}

#[tokio::test]
async fn server_without_removal_of_many_is_asked_for_one_at_a_time() {
    for status in [400, 403, 404, 405, 501] {
        let judge = move |request: &Request, _| match request.ask {
            Ask::Delete if request.key.is_empty() => Act::Refuse(Answer::new(status, "")),
            _ => Act::Serve,
        };
        let bucket = Bucket::new(judge);
        let (_home, artifacts) = deleted(&bucket.source(), 5, 3).await;
        let report = mirror(&artifacts).await;
        assert!(report.is_complete() && report.deleted == 3, "{status}: {report:?}");
        assert_eq!((bucket.asked(Ask::Delete), report.unconditional), (4, 0), "{status}");
    }
}

#[tokio::test]
async fn server_that_refuses_the_trial_of_many_gets_one_request_for_each() {
    let bucket = Bucket::new(|_, _| Act::Serve).without_bulk();
    let (_home, artifacts) = deleted(&bucket.source(), 5, 3).await;
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.deleted == 3 && report.unconditional == 0, "{report:?}");
    assert_eq!(bucket.asked(Ask::Delete), 3);
}

/// Where nothing is compared, one object is removed by itself.
#[tokio::test]
async fn one_object_is_gone_whatever_the_server_does_with_a_removal_of_many() {
    let said = |kind: &str| {
        let entry = format!("<{kind}><Key>nobody asked</Key><Code>InternalError</Code></{kind}>");
        Answer::new(200, format!("<DeleteResult>{entry}</DeleteResult>"))
    };
    let answers = [
        ("has removed another", said("Deleted")),
        ("has not removed another", said("Error")),
        ("knows no such call", Answer::new(501, "")),
    ];
    for (name, answer) in answers {
        let bucket = Bucket::new(move |request, _| match request.ask {
            Ask::Delete if !request.body.is_empty() => Act::Refuse(answer.clone()),
            _ => Act::Serve,
        });
        let bucket = bucket.careless();
        let (_home, artifacts) = deleted(&bucket.source(), 5, 1).await;
        let report = mirror(&artifacts).await;
        assert!(report.is_complete() && report.deleted == 1, "{name}: {report:?}");
        assert!(bucket.object("doomed0").is_none(), "{name}");
    }
}

#[tokio::test]
async fn one_object_that_may_not_be_deleted_costs_one_object() {
    let answer = "<DeleteResult><Deleted><Key>sessions/s1/doomed0</Key></Deleted><Error>\
        <Key>sessions/s1/doomed1</Key><Code>AccessDenied</Code></Error><Deleted><Key>sessions/s1/doomed2</Key>\
        </Deleted></DeleteResult>";
    let judge = move |request: &Request, _| match request.ask {
        Ask::Delete => Act::Refuse(Answer::new(200, answer)),
        _ => Act::Serve,
    };
    let bucket = Bucket::new(judge);
    let (_home, artifacts) = deleted(&bucket.source(), 5, 3).await;
    let report = mirror(&artifacts).await;
    assert_eq!((report.deleted, report.failed.total), (2, 1), "{report:?}");
    let (path, error) = report.failed.iter().next().unwrap();
    assert_eq!((path.to_str(), error.kind()), (Some("doomed1"), beneath::ErrorKind::Denied));
}

#[tokio::test]
async fn lost_answer_to_a_removal_of_many_is_settled_by_what_is_there() {
    let judge = |request: &Request, count| match request.ask {
        Ask::Delete if count == 0 => Act::ServeAndSay(Answer::closed()),
        _ => Act::Serve,
    };
    let bucket = Bucket::new(judge);
    let (_home, artifacts) = deleted(&bucket.source(), 5, 3).await;
    let report = mirror(&artifacts).await;
    assert!(report.is_complete() && report.deleted == 3, "{report:?}");
    assert_eq!(bucket.keys().len(), 5);
}

/// A removal of many can fail for minutes, and the objects were compared before it.
#[tokio::test]
async fn object_that_comes_while_a_removal_of_many_fails_stays() {
    for (status, fails) in [(503, 4), (501, 1)] {
        let bucket_of = Arc::new(std::sync::Mutex::new(None::<Bucket>));
        let other = Arc::clone(&bucket_of);
        let bucket = Bucket::new(move |request, count| match request.ask {
            Ask::Delete if count < fails => {
                other.lock().unwrap().as_ref().unwrap().plant("sessions/s1/doomed1");
                Act::Refuse(Answer::new(status, ""))
            }
            _ => Act::Serve,
        });
        let bucket = bucket.careless();
        *bucket_of.lock().unwrap() = Some(bucket.clone());
        let (_home, artifacts) = deleted(&bucket.source(), 5, 3).await;
        let report = mirror(&artifacts).await;
        assert_eq!((report.deleted, report.conflicts.len()), (2, 1), "{status}: {report:?}");
        assert_eq!(bucket.object("doomed1").unwrap(), b"planted");
    }
}

#[tokio::test]
async fn file_that_is_back_before_its_turn_keeps_its_object() {
    let home_of = Arc::new(std::sync::Mutex::new(None::<std::path::PathBuf>));
    let (back, lists) = (Arc::clone(&home_of), AtomicUsize::new(0));
    let bucket = Bucket::new(move |request, _| {
        if request.ask == Ask::List && lists.fetch_add(1, Ordering::SeqCst) == 1 {
            fs::write(back.lock().unwrap().as_ref().unwrap(), "again").unwrap();
        }
        Act::Serve
    });
    let (home, artifacts) = deleted(&bucket.source(), 5, 2).await;
    *home_of.lock().unwrap() = Some(home.workspace("doomed1"));
    let report = mirror(&artifacts).await;
    assert_eq!((report.deleted, report.failed.total), (1, 1), "{report:?}");
    assert!(bucket.object("doomed1").is_some() && bucket.object("doomed0").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_deletes_what_is_gone_and_nothing_else() {
    let mut stores = vec![("memory", support::memory(), 3), ("directory", support::local().1, 3)];
    for (name, server) in servers::S3 {
        let Some(server) = server() else { continue };
        let unconditional = if ["moto", "SeaweedFS"].contains(&name) { 0 } else { 3 };
        stores.push((name, server.bucket().await.1, unconditional));
    }
    for (name, source, unconditional) in stores {
        let (home, artifacts) = deleted(&source, 5, 3).await;
        let report = mirror(&artifacts).await;
        // s3s-fs lists no versions, so all that it lists may have changed.
        if name == "s3s-fs" {
            continue;
        }
        assert_eq!((report.deleted, report.unconditional), (3, unconditional), "{name}: {report:?}");
        assert_eq!(support::objects(&source).await, home.tree(), "{name}");
    }
}
