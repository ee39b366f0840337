//! The clouds: Azure by its emulator, and all of them by the bucket of this process.

use std::fs;

use beneath::artifacts::{Source, SyncOptions};

use crate::bucket::{Act, Answer, Ask, Bucket};
use crate::support::{self, Home};

/// Mirror, restore, conflict and deletion, with files in one request and in parts.
async fn round_trip(source: &Source) {
    let (one, two) = (Home::new(), Home::new());
    fs::create_dir(one.workspace("d")).unwrap();
    for (name, size) in [("d/caf\u{e9} + 1%.txt", 5), ("whole", 9 << 20), ("parts", 20 << 20)] {
        fs::write(one.workspace(name), vec![1; size]).unwrap();
    }
    let (first, second) = (one.artifacts(source), two.artifacts(source));
    let mirror = async |artifacts: &beneath::artifacts::Artifacts| {
        artifacts.mirror(&SyncOptions::default()).await.unwrap()
    };
    let report = mirror(&first).await;
    assert!(report.is_complete() && report.uploaded == 3, "{report:?}");
    let report = second.restore().await.unwrap();
    assert!(report.is_complete() && report.placed == 3, "{report:?}");
    assert!(one.tree() == two.tree());

    for (name, size) in [("whole", 10 << 20), ("parts", 21 << 20)] {
        fs::write(one.workspace(name), vec![1; size]).unwrap();
        fs::write(two.workspace(name), vec![2; size]).unwrap();
    }
    fs::remove_file(one.workspace("d/caf\u{e9} + 1%.txt")).unwrap();
    // The directory is empty now, and says so by an object of its own.
    let report = mirror(&first).await;
    assert_eq!((report.uploaded, report.deleted), (3, 1), "{report:?}");
    // What the second has is uploaded beside.
    let report = mirror(&second).await;
    assert_eq!((report.uploaded, report.conflicts.len()), (2, 2), "{report:?}");
    let mut objects = support::objects(source).await;
    objects.retain(|path, _| !path.contains(".ours-") && !path.ends_with("/%=") && !path.ends_with('/'));
    assert!(objects == one.tree());
}

#[cfg(feature = "azure")]
#[tokio::test]
async fn azure_takes_and_gives_back() {
    let Some(server) = crate::servers::azurite() else { return };
    round_trip(&Source::azure(server.container()).unwrap()).await;
}

#[cfg(feature = "gcp")]
#[tokio::test]
async fn gcs_takes_and_gives_back() {
    round_trip(&Bucket::new(|_, _| Act::Serve).gcs()).await;
}

/// A key that is no path kept all others from being listed, and a folder of a console was a file that is not there.
#[tokio::test]
async fn planted_key_costs_itself_and_a_folder_of_a_console_nothing() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    bucket.plant("sessions/s1/docs/a");
    ["sessions/s1/", "sessions/s1/docs/", "sessions/s1/empty/"]
        .iter()
        .for_each(|key| bucket.plant_empty(key));
    for (cloud, source) in bucket.clouds() {
        let home = Home::new();
        let artifacts = home.artifacts(&source);
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        assert!(report.is_complete() && report.placed == 2, "{cloud}: {report:?}");
        assert!(home.workspace("empty").is_dir() && home.tree()["docs/a"] == b"planted", "{cloud}");
    }
    let bad = ["sessions/s1/docs//b", "sessions/s1/../x", "sessions/s1//", "sessions/s1/a\tb"];
    bad.iter().for_each(|key| bucket.plant(key));
    for (cloud, source) in bucket.clouds() {
        let home = Home::new();
        let report = home.artifacts(&source).restore().await.unwrap();
        assert_eq!((report.placed, report.left.total), (2, 4), "{cloud}: {report:?}");
        assert_eq!(home.tree().len(), 1, "{cloud}");
    }
}

/// The folder goes when its directory does, and what was not seen stays.
#[tokio::test]
async fn folder_of_a_console_goes_with_its_directory() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    for (cloud, source) in bucket.clouds() {
        bucket.plant_empty("sessions/s1/empty/");
        bucket.plant("sessions/s1/kept//b");
        let home = Home::new();
        let artifacts = home.artifacts(&source);
        let _ = artifacts.sync(&SyncOptions::default()).await.unwrap();
        fs::remove_dir(home.workspace("empty")).unwrap();
        let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
        assert_eq!((report.deleted, report.left.total), (1, 1), "{cloud}: {report:?}");
        assert_eq!(bucket.keys(), ["sessions/s1/kept//b"], "{cloud}");
    }
}

#[cfg(feature = "azure")]
#[tokio::test]
async fn azurite_lists_and_reads_raw_keys() {
    use futures_util::TryStreamExt as _;

    let Some(server) = crate::servers::azurite() else { return };
    let container = server.container();
    let source = Source::azure(container.clone()).unwrap();
    let name = container.get_config_value(&object_store::azure::AzureConfigKey::ContainerName).unwrap();
    let mut keys =
        ["a//b", "docs/", "docs/a", "x%41+y &;", "caf\u{e9}"].map(|key| format!("sessions/s1/{key}"));
    for key in &keys {
        let encoded = percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC);
        let content: &[u8] = if key.ends_with('/') { b"" } else { b"planted" };
        let answer = server.azure("PUT", &format!("{name}/{encoded}"), content);
        assert!(answer.contains(" 201 "), "{key}: {answer}");
    }
    keys.sort();
    let listed: Vec<_> = source.list(&support::prefix()).try_collect().await.unwrap();
    let mut found: Vec<_> = listed.into_iter().map(|object| String::from_utf8(object.key).unwrap()).collect();
    found.sort();
    assert_eq!(found, keys);
    for key in keys.iter().filter(|key| !key.ends_with('/')) {
        assert_eq!(support::get_key(&source, key).await, b"planted", "{key}");
    }
    let home = Home::new();
    let report = home.artifacts(&source).restore().await.unwrap();
    assert_eq!((report.placed, report.left.total), (3, 1), "{report:?}");
    // A store that is found through the URL has a client of its own, which ends at the first of them.
    let own = Source::new(std::sync::Arc::new(container.build().unwrap()));
    assert!(!own.backend().abilities().raw_keys);
}

#[cfg(feature = "azure")]
#[tokio::test]
async fn azure_signs_urls_that_read_one_object() {
    let Some(server) = crate::servers::azurite() else { return };
    let source = Source::azure(server.container()).unwrap();
    let (home, minute) = (Home::new(), std::time::Duration::from_secs(60));
    let artifacts = home.artifacts(&source);
    let path = beneath::GuestPath::new("out/a-1_~.txt").unwrap();
    artifacts.put(&path, "signed content").await.unwrap().uploaded.unwrap();
    let url = artifacts.signed_url(&path, minute).await.unwrap();
    let target = url.split_once("127.0.0.1").unwrap().1.split_once('/').unwrap().1;
    let answer = server.http("GET", &format!("/{target}"), "", b"").unwrap();
    assert!(answer.contains(" 200 ") && answer.ends_with("signed content"), "{answer}");
    let answer = server.http(
        "GET",
        &format!("/{}", target.replace("&se=2", "&se=3").replace("?se=2", "?se=3")),
        "",
        b"",
    );
    assert!(answer.unwrap().contains(" 403 "));
    // Its client would sign it wrongly.
    for name in ["a b", "caf\u{e9}", "100%"] {
        let odd = beneath::GuestPath::new(name).unwrap();
        let error = artifacts.signed_url(&odd, minute).await.unwrap_err();
        assert_eq!(error.kind(), beneath::ErrorKind::Unsupported, "{name}");
    }
}

#[cfg(feature = "azure")]
#[tokio::test]
async fn azure_compares_and_deletes_in_one_step() {
    let Some(server) = crate::servers::azurite() else { return };
    let source = Source::azure(server.container()).unwrap();
    let home = Home::new();
    let artifacts = home.artifacts(&source);
    for name in ["a", "b", "c"] {
        fs::write(home.workspace(name), name).unwrap();
    }
    assert!(artifacts.mirror(&SyncOptions::default()).await.unwrap().is_complete());
    fs::remove_file(home.workspace("a")).unwrap();
    let report = artifacts.mirror(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.deleted, report.unconditional), (1, 0), "{report:?}");
}

/// The client of a cloud made ten more of each.
#[tokio::test]
async fn one_attempt_is_one_request() {
    let retry = |attempts| {
        let short = std::time::Duration::from_millis(1);
        beneath::artifacts::Retry::default().with_attempts(attempts).with_pause(short, short)
    };
    for attempts in [1, 3] {
        for ask in [Ask::List, Ask::Get, Ask::Put] {
            let bucket = || {
                let bucket = Bucket::new(move |request, _| match request.ask == ask {
                    true => Act::Refuse(Answer::new(503, "<Error><Code>SlowDown</Code></Error>")),
                    false => Act::Serve,
                });
                bucket.plant("sessions/s1/a");
                bucket
            };
            for cloud in 0..bucket().clouds().len() {
                let bucket = bucket();
                let (name, source) = bucket.clouds().remove(cloud);
                let home = Home::new();
                fs::write(home.workspace("b"), "b").unwrap();
                let artifacts = home.artifacts(&source).with_retry(retry(attempts));
                let synced = artifacts.sync(&SyncOptions::default()).await;
                assert!(!synced.is_ok_and(|report| report.is_complete()), "{name} {ask:?}");
                assert_eq!(bucket.asked(ask), attempts as usize, "{name} {ask:?}");
            }
        }
    }
}

/// There is no listing by raw keys, so a key that is no path costs its directory.
#[tokio::test]
async fn planted_key_costs_a_store_of_ones_own_one_directory() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    let planted = ["a", "d/e/x", "d/e//y", "d/z", "f/g"].map(|path| format!("sessions/s1/{path}"));
    planted.iter().for_each(|key| bucket.plant(key));
    let home = Home::new();
    let source = Source::new(std::sync::Arc::new(bucket.builder().build().unwrap()));
    let artifacts = home.artifacts(&source);
    let report = artifacts.restore().await.unwrap();
    assert_eq!(home.tree().keys().collect::<Vec<_>>(), ["a", "d/z", "f/g"], "{report:?}");
    let refused: Vec<_> = report.refused().map(|(key, _)| key.to_str().unwrap()).collect();
    assert_eq!(refused, ["sessions/s1/d/e//", "sessions/s1/d/e/"], "what the store says, and what it costs");
    // Nothing there is taken for deleted, and nothing is put over what cannot be seen.
    fs::create_dir(home.workspace("d/e")).unwrap();
    fs::write(home.workspace("d/e/x"), "mine").unwrap();
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert_eq!((report.uploaded, report.deleted), (0, 0), "{report:?}");
    assert_eq!(bucket.object("d/e/x").unwrap(), b"planted");

    // Directly below the prefix nothing can be listed around it, and the error names it.
    bucket.plant("sessions/s1//b");
    let error = artifacts.restore().await.unwrap_err();
    assert_eq!(error.kind(), beneath::ErrorKind::InvalidPath);
    assert!(error.to_string().contains("sessions/s1//"), "{error}");
}

/// What is listed before the key that is no path comes on a page of its own, and once.
#[tokio::test]
async fn objects_of_earlier_pages_are_listed_once() {
    use futures_util::TryStreamExt as _;

    let (first, second) = ("<Key>p/a</Key>", "<Key>p/d//x</Key>");
    let object = |key: &str| {
        format!(
            "<Contents>{key}<Size>1</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        )
    };
    let answer = move |request: &crate::bucket::Request, _| {
        let rest = match (request.query.get("delimiter"), request.query.get("continuation-token")) {
            (None, None) => {
                object(first)
                    + "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
            }
            (None, Some(_)) => object(second),
            (Some(_), _) if request.query["prefix"] == "p/" => {
                object(first)
                    + &object("<Key>p/b</Key>")
                    + "<CommonPrefixes><Prefix>p/d/</Prefix></CommonPrefixes>"
            }
            (Some(_), _) => object(second),
        };
        Act::Refuse(Answer::new(200, format!("<ListBucketResult>{rest}</ListBucketResult>")))
    };
    let bucket = Bucket::new(answer);
    let source = Source::new(std::sync::Arc::new(bucket.builder().build().unwrap()));
    let prefix = beneath::artifacts::Prefix::at(&beneath::SafePath::new("p").unwrap());
    let listed: Vec<_> = source.list(&prefix).try_collect().await.unwrap();
    let mut keys: Vec<_> = listed.iter().map(|object| String::from_utf8_lossy(&object.key)).collect();
    keys.sort();
    assert_eq!(keys, ["p/a", "p/b", "p/d/", "p/d//x"]);
}
