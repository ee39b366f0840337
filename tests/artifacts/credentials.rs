//! Credentials that an instance, a container or an identity provider gives, by a bucket that answers in their place.
//!
//! Not tried: `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI`, whose address is fixed, and `AWS_WEB_IDENTITY_TOKEN_FILE`, which is
//! exchanged over TLS only.

use std::process::Command;
use std::sync::{Arc, Mutex};

use beneath::artifacts::{Prefix, Source};
use beneath::{SafePath, ambient_authority};
use futures_util::TryStreamExt as _;

use crate::bucket::{Act, Answer, Bucket, Request};
use crate::support;

const VARIABLE: &str = "BENEATH_CREDENTIALS_CHILD";

/// What a child is given that opens a store.
struct Case {
    name: &'static str,
    url: &'static str,
    /// Names and values, with `{url}` for the bucket and `{token}` for a file.
    settings: &'static [(&'static str, &'static str)],
    /// The key that is asked for, what the request has in one of its headers or in its body, and the answer.
    exchanges: &'static [(&'static str, &'static str, &'static str)],
    /// A header that every request for an object has, and what is in it.
    proof: (&'static str, &'static str),
}

/// What AWS hands out; the last is long after any test.
const AWS: &str = r#"{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"fetched","SecretAccessKey":"s","Token":"session","Expiration":"2999-01-01T00:00:00Z"}"#;

const CASES: &[Case] = &[
    Case {
        name: "the metadata service of an instance of AWS",
        url: "s3://bucket/p",
        settings: &[
            ("AWS_METADATA_ENDPOINT", "{url}/bucket"),
            ("AWS_ENDPOINT_URL", "{url}"),
            ("AWS_ALLOW_HTTP", "true"),
        ],
        exchanges: &[
            ("latest/api/token", "600", "imds"),
            ("latest/meta-data/iam/security-credentials/", "imds", "role"),
            ("latest/meta-data/iam/security-credentials/role", "imds", AWS),
        ],
        proof: ("x-amz-security-token", "session"),
    },
    Case {
        name: "a container of EKS",
        url: "s3://bucket/p",
        settings: &[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "{url}/bucket/container"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "{token}"),
            ("AWS_ENDPOINT_URL", "{url}"),
            ("AWS_ALLOW_HTTP", "true"),
        ],
        exchanges: &[("container", "token of the pod", AWS)],
        proof: ("x-amz-security-token", "session"),
    },
    #[cfg(feature = "gcp")]
    Case {
        name: "the metadata server of an instance of GCS",
        url: "gs://bucket/p",
        settings: &[("GCE_METADATA_HOST", "{host}/bucket"), ("GOOGLE_BASE_URL", "{url}")],
        exchanges: &[(
            "computeMetadata/v1/instance/service-accounts/default/token",
            "Google",
            r#"{"access_token":"fetched","expires_in":3600}"#,
        )],
        proof: ("authorization", "Bearer fetched"),
    },
    #[cfg(feature = "azure")]
    Case {
        name: "the managed identity of a machine of Azure",
        url: "az://bucket/p",
        settings: &[
            ("AZURE_MSI_ENDPOINT", "{url}/bucket/msi"),
            ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
            ("AZURE_ENDPOINT", "{url}"),
            ("AZURE_ALLOW_HTTP", "true"),
        ],
        exchanges: &[("msi", "true", r#"{"access_token":"fetched","expires_on":"32503680000"}"#)],
        proof: ("authorization", "Bearer fetched"),
    },
    #[cfg(feature = "azure")]
    Case {
        name: "a federated token of Azure",
        url: "az://bucket/p",
        settings: &[
            ("AZURE_AUTHORITY_HOST", "{url}/bucket"),
            ("AZURE_CLIENT_ID", "client"),
            ("AZURE_TENANT_ID", "tenant"),
            ("AZURE_FEDERATED_TOKEN_FILE", "{token}"),
            ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
            ("AZURE_ENDPOINT", "{url}"),
            ("AZURE_ALLOW_HTTP", "true"),
        ],
        exchanges: &[(
            "tenant/oauth2/v2.0/token",
            "client_assertion=token+of+the+pod",
            r#"{"access_token":"fetched","expires_in":3600}"#,
        )],
        proof: ("authorization", "Bearer fetched"),
    },
];

#[test]
fn credentials_are_fetched_from_where_the_environment_says() {
    for Case { name, url, settings, exchanges, proof } in CASES {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let judge = move |request: &Request, _| {
            let says = |wanted: &str| {
                request.headers.values().any(|value| value == wanted)
                    || String::from_utf8_lossy(&request.body).contains(wanted)
            };
            log.lock().unwrap().push(request.key.clone());
            match exchanges.iter().find(|(key, ..)| *key == request.key) {
                Some((_, wanted, answer)) if says(wanted) => Act::Refuse(Answer::new(200, *answer)),
                Some(_) => Act::Refuse(Answer::new(400, "")),
                None if request.headers.get(proof.0).is_some_and(|value| value == proof.1) => Act::Serve,
                None => Act::Refuse(Answer::new(403, "")),
            }
        };
        let bucket = Bucket::new(judge);
        bucket.plant("p/a");
        let home = tempfile::tempdir().unwrap();
        let token = home.path().join("token");
        std::fs::write(&token, "token of the pod").unwrap();
        let base = bucket.url();
        let filled = |value: &str| {
            let value = value.replace("{host}", base.trim_start_matches("http://"));
            value.replace("{url}", &base).replace("{token}", token.to_str().unwrap())
        };
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "credentials::child", "--nocapture", "--test-threads=1"])
            .env_clear()
            .env("HOME", home.path())
            .env(VARIABLE, url)
            .envs(settings.iter().map(|(key, value)| (key, filled(value))))
            .output()
            .unwrap();
        let asked = asked.lock().unwrap();
        assert!(output.status.success(), "{name}: {asked:?} {}", String::from_utf8_lossy(&output.stdout));
        let wanted: Vec<_> = exchanges.iter().map(|(key, ..)| *key).chain(["", "p/a"]).collect();
        assert_eq!(*asked, wanted, "{name}: each once, and then the listing and the object");
    }
}

/// Not a test by itself: what the child runs.
#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var(VARIABLE) else { return };
    let (source, path) = Source::parse(&url, ambient_authority()).unwrap();
    assert_eq!(path, Some(SafePath::new("p").unwrap()));
    let listed: Vec<_> = source.list(&Prefix::at(&path.unwrap())).try_collect().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(support::get_key(&source, "p/a").await, b"planted");
}
