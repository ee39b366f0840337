//! Azure, by an emulator that is started only if it is named, and GCS, by the bucket of this process.

use std::fs;
#[cfg(feature = "azure")]
use std::sync::Arc;

use beneath::artifacts::{Source, SyncOptions};

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
    objects.retain(|path, _| !path.contains(".ours-") && !path.ends_with("/%="));
    assert!(objects == one.tree());
}

/// The account and the key that every Azurite has.
#[cfg(feature = "azure")]
const ACCOUNT: &str = "devstoreaccount1";
#[cfg(feature = "azure")]
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

#[cfg(feature = "azure")]
#[tokio::test]
async fn azure_takes_and_gives_back() {
    use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential, MicrosoftAzureBuilder};
    use object_store::client::{HttpRequest, HttpRequestBody};

    let Some(server) = crate::servers::azurite() else { return };
    let endpoint = format!("http://127.0.0.1:{}/{ACCOUNT}", server.port);
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = "PUT".parse().unwrap();
    *request.uri_mut() = format!("{endpoint}/bucket?restype=container").parse().unwrap();
    let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(KEY).unwrap());
    AzureAuthorizer::new(&credential, ACCOUNT).try_authorize(&mut request).unwrap();
    let headers: String = request
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()))
        .collect();
    let answer = server.http("PUT", &format!("/{ACCOUNT}/bucket?restype=container"), &headers, b"").unwrap();
    assert!(answer.contains(" 201 "), "{answer}");

    let store = MicrosoftAzureBuilder::new()
        .with_account(ACCOUNT)
        .with_access_key(KEY)
        .with_container_name("bucket")
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .build()
        .unwrap();
    round_trip(&Source::new(Arc::new(store))).await;
}

#[cfg(feature = "gcp")]
#[tokio::test]
async fn gcs_takes_and_gives_back() {
    use crate::bucket::{Act, Bucket};

    round_trip(&Bucket::new(|_, _| Act::Serve).gcs()).await;
}
