//! What a store says when it refuses, as errors that a person can act on.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use beneath::artifacts::conformance::Attributes;
use beneath::artifacts::{Retry, Source, SyncOptions};
use beneath::{ErrorKind, GuestPath};

use crate::bucket::{Act, Answer, Ask, Bucket, Request};
use crate::servers;
use crate::support::Home;

fn error(status: u16, code: &str) -> Answer {
    Answer::new(
        status,
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>"),
    )
}

/// By raw keys, and by the store's own client.
fn both(bucket: &Bucket) -> [(&'static str, Source); 2] {
    let once = object_store::RetryConfig { max_retries: 0, ..object_store::RetryConfig::default() };
    let own = Source::new(Arc::new(bucket.builder().with_retry(once).build().unwrap()));
    [("raw", bucket.source()), ("own client", own)]
}

#[tokio::test]
async fn each_refusal_of_a_listing_has_its_kind_its_code_and_what_to_do() {
    let cases = [
        (403, "SignatureDoesNotMatch", ErrorKind::Denied, "secret key"),
        (403, "RequestTimeTooSkewed", ErrorKind::Denied, "clock"),
        (403, "AccessDenied", ErrorKind::Denied, "permit"),
        (403, "InvalidAccessKeyId", ErrorKind::Denied, "access key"),
        (400, "ExpiredToken", ErrorKind::Denied, "expired"),
        (404, "NoSuchBucket", ErrorKind::NotFound, "bucket does not exist"),
        (400, "AuthorizationHeaderMalformed", ErrorKind::Unsupported, "another region"),
        (501, "NotImplemented", ErrorKind::Unsupported, "does not know"),
    ];
    for (status, code, kind, words) in cases {
        let bucket = Bucket::new(move |_, _| Act::Refuse(error(status, code)));
        for (name, source) in both(&bucket) {
            let found = Home::new().artifacts(&source).restore().await.unwrap_err();
            let text = found.to_string();
            assert_eq!(found.kind(), kind, "{name}, {code}: {text}");
            assert!(text.contains(words) && text.contains(code), "{name}, {code}: {text}");
        }
    }
}

#[tokio::test]
async fn refusal_of_a_condition_names_the_permission_that_it_needs() {
    let judge = |request: &Request, _| match request.ask {
        Ask::Put => Act::Refuse(error(403, "AccessDenied")),
        _ => Act::Serve,
    };
    let bucket = Bucket::new(judge);
    let home = Home::new();
    fs::write(home.workspace("a"), "x").unwrap();
    let report = home.artifacts(&bucket.source()).mirror(&SyncOptions::default()).await.unwrap();
    let (_, error) = report.failed.iter().next().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(
        error.to_string().contains("s3:GetObject") && error.to_string().contains("AccessDenied"),
        "{error}"
    );
}

#[tokio::test]
async fn body_of_a_refusal_is_bounded_and_escaped() {
    let hostile = format!("<Error><Code>\u{1b}]0;owned\u{202e}{}</Code></Error>", "x".repeat(3000));
    for body in [hostile, "y".repeat(10 << 20), "<Error><Code>".to_owned() + &"<a>".repeat(100_000)] {
        let bucket = Bucket::new(move |_, _| Act::Refuse(Answer::new(403, body.clone())));
        let error = Home::new().artifacts(&bucket.source()).restore().await.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Denied, "{text}");
        assert!(text.len() < 1000 && !text.contains(['\u{1b}', '\u{202e}']), "{text}");
    }
}

#[tokio::test]
async fn wrong_credentials_are_told_apart_on_a_real_server() {
    let Some(server) = servers::weed() else { return };
    let (bucket, _) = server.bucket().await;
    let builder = || server.builder(&bucket);
    for (source, code) in [
        (builder().with_secret_access_key("wrong"), "SignatureDoesNotMatch"),
        (builder().with_access_key_id("nobody"), "InvalidAccessKeyId"),
    ] {
        let error = Home::new().artifacts(&Source::s3(source).unwrap()).restore().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains(code), "{error}");
    }
}

#[tokio::test]
async fn silence_of_who_gives_the_credentials_is_given_up_by_every_call() {
    let silent = Bucket::new(|_, _| Act::Refuse(Answer::closed().then_silence()));
    let builder = object_store::aws::AmazonS3Builder::new()
        .with_bucket_name("bucket")
        .with_region("us-east-1")
        .with_metadata_endpoint(silent.url());
    let retry = Retry::default().with_attempts(1).with_silence(Duration::from_millis(300));
    let home = Home::new();
    let artifacts = home.artifacts(&Source::s3(builder).unwrap()).with_retry(retry);
    let (path, start) = (GuestPath::new("a").unwrap(), Instant::now());
    let errors = [
        artifacts.signed_url(&path, Duration::from_secs(1)).await.unwrap_err(),
        artifacts.signed_download(&path, Duration::from_secs(1)).await.unwrap_err(),
        artifacts.restore().await.unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Io), "{errors:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// The client of S3 names itself by its bucket alone.
#[test]
fn a8_buckets_of_one_name_at_two_servers_are_two_stores() {
    let [one, two] = [(); 2].map(|()| Bucket::new(|_, _| Act::Serve));
    let key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    for with_key in [false, true] {
        let identity = |bucket: &Bucket| {
            let builder = bucket.builder();
            let builder = if with_key { builder.with_ssec_encryption(key) } else { builder };
            Source::s3(builder).unwrap().backend().identity()
        };
        assert_ne!(identity(&one), identity(&two), "{with_key}");
        assert_eq!(identity(&one), identity(&one), "{with_key}");
    }
}

/// Whoever logs a session shows its source, too.
#[tokio::test]
async fn text_of_a_source_shows_no_credentials() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    let s3 =
        || bucket.builder().with_access_key_id("k").with_secret_access_key("secret").with_token("secret");
    let options = object_store::ClientOptions::new().with_allow_http(true);
    let options = options.with_proxy_url("http://user:secret@127.0.0.1:1");
    #[cfg_attr(not(feature = "azure"), allow(unused_mut))]
    let mut sources = vec![
        Source::s3(s3()).unwrap(),
        Source::s3(s3().with_client_options(options)).unwrap(),
        Source::signing(Arc::new(s3().build().unwrap())),
    ];
    #[cfg(feature = "azure")]
    {
        use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
        let azure = MicrosoftAzureBuilder::new().with_account("account").with_container_name("bucket");
        sources.push(Source::azure(azure.with_config(AzureConfigKey::SasKey, "sv=1&sig=secret")).unwrap());
    }
    for source in &sources {
        let home = Home::new();
        let upload = source.backend().begin("a", &Attributes::NONE).await;
        let texts = [format!("{source:?}"), format!("{:?}", home.artifacts(source)), format!("{upload:?}")];
        assert!(texts.iter().all(|text| !text.contains("secret")), "{texts:?}");
    }
    assert!(format!("{:?}", sources[0]).contains(&bucket.url()), "{:?}", sources[0]);
}

#[tokio::test]
async fn a29_redirect_is_followed_to_no_other_host() {
    // What a store must not be able to reach.
    let inner = Bucket::new(|_, _| Act::Serve);
    inner.plant("sessions/s1/a");
    for status in [301, 302, 307, 308] {
        let to = format!("{}/bucket/sessions/s1/a", inner.url());
        let judge = move |_: &Request, _| {
            let answer = Answer::new(status, "").with("Location", &to);
            Act::Refuse(answer.with("x-amz-bucket-region", "eu-west-3"))
        };
        let outer = Bucket::new(judge);
        for (cloud, source) in outer.clouds() {
            let home = Home::new();
            let artifacts = home.artifacts(&source);
            fs::write(home.workspace("secret"), "secret").unwrap();
            let error = artifacts.mirror(&SyncOptions::default()).await.unwrap_err();
            assert!(
                error.to_string().contains("another region") && error.to_string().contains("eu-west-3"),
                "{cloud}: {error}"
            );
            // Past the listing, in requests of our own and of the store's client.
            let store = source.backend();
            let condition = beneath::artifacts::conformance::Condition::Always;
            assert!(store.get("sessions/s1/a", None).await.is_err());
            assert!(store.head("sessions/s1/a").await.is_err());
            assert!(store.put("sessions/s1/a", "secret".into(), &Attributes::NONE, condition).await.is_err());
            assert!(store.delete("sessions/s1/a").await.is_err());
        }
        assert!(inner.order().is_empty(), "{status}: {:?}", inner.order());
    }
}
