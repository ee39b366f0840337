//! Stores by their URLs, with the settings of the environment.

use std::process::Command;

use beneath::artifacts::{Prefix, Source, SyncOptions};
use beneath::{ErrorKind, ambient_authority};

use crate::servers;
use crate::support::{self, Home};

const VARIABLE: &str = "BENEATH_PARSE_CHILD";

fn parse(url: &str) -> beneath::Result<(Source, Option<beneath::SafePath>)> {
    Source::parse(url, ambient_authority())
}

#[tokio::test]
async fn directory_and_memory_are_opened_by_their_urls() {
    let home = tempfile::tempdir().unwrap();
    let (source, path) = parse(&format!("file://{}", home.path().display())).unwrap();
    assert_eq!(path, None);
    support::put_object(&source, "a", b"x").await;
    assert!(home.path().join("sessions/s1/a").exists());
    for (url, path) in [("memory://", None), ("memory:///", None), ("memory:///a/b/", Some("a/b"))] {
        let (source, found) = parse(url).unwrap();
        assert_eq!(found.as_ref().map(|path| path.as_str()), path, "{url}");
        assert!(support::objects(&source).await.is_empty(), "{url}");
    }
}

#[test]
fn url_that_is_more_than_a_bucket_and_a_path_is_refused_and_not_repeated() {
    let cases = [
        ("bucket", ErrorKind::InvalidPath),
        ("s3://", ErrorKind::InvalidPath),
        ("s3:///path", ErrorKind::InvalidPath),
        ("s3://AKIA:secret@bucket/path", ErrorKind::InvalidPath),
        ("s3://bucket:443/path", ErrorKind::InvalidPath),
        ("s3://../path", ErrorKind::InvalidPath),
        ("s3://./path", ErrorKind::InvalidPath),
        ("s3://bucket/a//b", ErrorKind::InvalidPath),
        ("s3://bucket/../other", ErrorKind::InvalidPath),
        ("s3://bucket/a?secret=1", ErrorKind::InvalidPath),
        ("memory://host/a", ErrorKind::InvalidPath),
        ("file://host/a", ErrorKind::InvalidPath),
        ("file:///a%20b", ErrorKind::InvalidPath),
        ("https://secret.example", ErrorKind::Unsupported),
        ("file:///nowhere/secret", ErrorKind::NotFound),
    ];
    for (url, kind) in cases {
        let error = parse(url).unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{url}: {error:?}");
    }
}

#[test]
#[cfg(not(feature = "gcp"))]
fn store_whose_feature_is_off_is_unsupported() {
    assert_eq!(parse("gs://bucket/a").unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn bucket_is_opened_with_the_credentials_of_the_environment() {
    let Some(server) = servers::weed() else { return };
    let (bucket, source) = server.bucket().await;
    support::put_object(&source, "a", b"x").await;
    let run = |secret: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "parse::child", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, format!("s3://{bucket}/sessions/s1"))
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", server.port))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", servers::KEY_ID)
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert!(run(servers::SECRET).0, "{}", run(servers::SECRET).1);
    assert!(!run("wrong").0, "the control");
}

/// What a child does with that environment, and with one in which a name has another value.
#[cfg(any(feature = "azure", feature = "gcp"))]
fn runs(url: &str, settings: &[(&str, &str)]) -> bool {
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "parse::child", "--nocapture", "--test-threads=1"])
        // Where it finds no credentials of a person.
        .env("HOME", empty.path())
        .env(VARIABLE, url)
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    output.status.success()
}

#[cfg(feature = "azure")]
#[tokio::test]
async fn container_is_opened_with_the_credentials_of_the_environment() {
    let Some(server) = servers::azurite() else { return };
    let container = server.container();
    support::put_object(&Source::azure(container.clone()).unwrap(), "a", b"x").await;
    let name = container.get_config_value(&object_store::azure::AzureConfigKey::ContainerName).unwrap();
    let (url, endpoint) = (
        format!("az://{name}/sessions/s1"),
        format!("http://127.0.0.1:{}/{}", server.port, servers::ACCOUNT),
    );
    let settings = |key| {
        [
            ("AZURE_STORAGE_ACCOUNT_NAME", servers::ACCOUNT),
            ("AZURE_STORAGE_ACCOUNT_KEY", key),
            ("AZURE_ENDPOINT", endpoint.as_str()),
            ("AZURE_ALLOW_HTTP", "true"),
        ]
    };
    assert!(runs(&url, &settings(servers::ACCOUNT_KEY)));
    assert!(!runs(&url, &settings("d3Jvbmc=")), "the control");
}

#[cfg(feature = "gcp")]
#[tokio::test]
async fn bucket_of_gcs_is_opened_with_the_credentials_of_the_environment() {
    use crate::bucket::{Act, Answer, Bucket};

    let bucket = Bucket::new(|request, _| {
        match request.headers.get("authorization").is_some_and(|token| token == "Bearer right") {
            true => Act::Serve,
            false => Act::Refuse(Answer::new(401, "")),
        }
    });
    bucket.plant("sessions/s1/a");
    let base = bucket.url();
    let settings = |token| [("GOOGLE_BASE_URL", base.as_str()), ("GOOGLE_BEARER_TOKEN", token)];
    assert!(runs("gs://bucket/sessions/s1", &settings("right")));
    assert!(!runs("gs://bucket/sessions/s1", &settings("wrong")), "the control");
}

/// Not a test by itself: what the child runs.
#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var(VARIABLE) else { return };
    let (source, path) = parse(&url).unwrap();
    let home = Home::new();
    let session = support::session_at(&home.path(""));
    let prefix = Prefix::at(&path.unwrap());
    let artifacts = beneath::artifacts::Artifacts::new(source, prefix, &session);
    let report = artifacts.sync(&SyncOptions::default()).await.unwrap();
    assert!(report.is_complete() && report.placed == 1, "{report:?}");
}
