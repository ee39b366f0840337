//! What every store must do, one claim after the other, on every backend and on every server that is to be had.
//!
//! A new store is one file in `src/artifacts/store` and one row in [`stores`].

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use beneath::artifacts::conformance::{Attributes, Backend, Body, Compares, Condition, Doomed, Kind};
use beneath::artifacts::{Retry, Source};
use beneath::{Error, ErrorKind};
use beneath_kit::rig::Table;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;

use crate::bucket::{Act, Bucket};
use crate::keys::AWKWARD;
use crate::{servers, support};

/// Checks one thing on a store, at keys that start with the given prefix.
type Claim = fn(Source, String) -> BoxFuture<'static, ()>;

const CLAIMS: [(&str, Claim); 22] = [
    ("what is put is what is read", |store, at| Box::pin(put_and_get(store, at))),
    ("what is not there is not found", |store, at| Box::pin(missing(store, at))),
    ("put, head, get and list report one version", |store, at| Box::pin(one_version(store, at))),
    ("a put that wants no object overwrites none", |store, at| Box::pin(put_absent(store, at))),
    ("a put that wants a version replaces no other", |store, at| Box::pin(put_unchanged(store, at))),
    ("of eight that create one object one succeeds", |store, at| Box::pin(race_to_create(store, at))),
    ("the rest of an object is exactly that or none", |store, at| Box::pin(rest(store, at))),
    ("a listing has what is under the prefix, and no more", |store, at| Box::pin(list(store, at))),
    ("a listing of more than a page is whole", |store, at| Box::pin(list_many(store, at))),
    ("odd keys are listed as they are", |store, at| Box::pin(odd_keys(store, at))),
    ("a key that is no path reaches no other object", |store, at| Box::pin(hostile_keys(store, at))),
    ("what is deleted is gone, and once is as good as twice", |store, at| Box::pin(delete(store, at))),
    ("parts become one object, and nobody sees it before", |store, at| Box::pin(parts(store, at))),
    ("parts that are discarded leave nothing", |store, at| Box::pin(discard(store, at))),
    ("a completion that wants no object overwrites none", |store, at| Box::pin(complete_absent(store, at))),
    ("a large object in one request is whole", |store, at| Box::pin(large(store, at))),
    ("a URL is signed, or the store says that it signs none", |store, at| Box::pin(sign(store, at))),
    ("a removal that wants a version removes no other", |store, at| Box::pin(delete_if(store, at))),
    ("of many that are removed together each has its outcome", |store, at| Box::pin(delete_many(store, at))),
    ("many that are removed by version are no others", |store, at| Box::pin(delete_many_if(store, at))),
    ("an object keeps what it says of its file", |store, at| Box::pin(attributes(store, at))),
    ("a directory is an object of its own, and is listed", |store, at| Box::pin(marker(store, at))),
];

/// Every backend, and every server by raw keys and through object_store's own client.
async fn stores() -> Vec<(String, Source)> {
    let own =
        |builder: object_store::aws::AmazonS3Builder| Source::signing(Arc::new(builder.build().unwrap()));
    let bucket = Bucket::new(|_, _| Act::Serve);
    #[cfg(feature = "gcp")]
    let gcs = Bucket::new(|_, _| Act::Serve);
    let stores = vec![
        ("memory", support::memory()),
        ("memory, as any store", Source::new(Arc::new(object_store::memory::InMemory::new()))),
        ("directory, as any store", support::directory()),
        ("directory", support::local().1),
        ("bucket", bucket.source()),
        ("bucket, own client", own(bucket.builder())),
        #[cfg(feature = "gcp")]
        ("bucket, as GCS", gcs.gcs()),
        #[cfg(feature = "gcp")]
        ("bucket, as GCS, own client", Source::new(Arc::new(gcs.gcs_builder().build().unwrap()))),
    ];
    let mut stores: Vec<_> = stores.into_iter().map(|(name, source)| (name.to_owned(), source)).collect();
    for (name, server) in servers::S3 {
        let Some(server) = server() else { continue };
        let (bucket, source) = server.bucket().await;
        stores.push((name.to_owned(), source));
        stores.push((format!("{name}, own client"), own(server.builder(&bucket))));
    }
    #[cfg(feature = "azure")]
    if let Some(server) = servers::azurite() {
        let container = server.container();
        stores.push(("Azurite".to_owned(), Source::azure(container.clone()).unwrap()));
        stores.push(("Azurite, own client".to_owned(), Source::new(Arc::new(container.build().unwrap()))));
    }
    stores
}

/// The claims, by number, that a server does not keep. What a server does now and then is in the second list.
const BREAKS: [(&str, &[usize], &[usize]); 8] = [
    ("directory, as any store", &[21], &[]),
    ("moto", &[20], &[]),
    ("s3s-fs", &[3, 11, 14, 18, 20, 22], &[6]),
    ("s3s-fs, own client", &[3], &[6, 14]),
    ("s3rver", &[4, 5, 6, 9, 14, 15, 18, 20], &[]),
    ("s3rver, own client", &[4, 5, 6, 9, 14], &[]),
    ("rclone serve s3", &[4, 5, 6, 11, 13, 15, 18, 20, 22], &[9]),
    ("rclone serve s3, own client", &[4, 5, 6, 7, 13], &[]),
];

/// Writes the table of `docs/evidence/stores.md`. A server that keeps a claim which it is said to break is a failure too: the table
/// and the code that allows for it would no longer be true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_store_keeps_every_claim_that_it_is_not_known_to_break() {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (name, source) in stores().await {
        let (breaks, may) = BREAKS
            .iter()
            .find(|(known, ..)| *known == name)
            .map_or((&[][..], &[][..]), |(_, breaks, may)| (*breaks, *may));
        let mut kept = [true; CLAIMS.len()];
        for (kept, (number, (claim, check))) in kept.iter_mut().zip((1..).zip(&CLAIMS)) {
            let at = format!("conformance/{}/{number}/", name.replace([' ', ','], "-"));
            let check =
                tokio::time::timeout(Duration::from_secs(60), tokio::spawn(check(source.clone(), at)));
            *kept = check.await.is_ok_and(|done| done.is_ok());
            if *kept == breaks.contains(&number) && !may.contains(&number) {
                wrong.push(format!("{name}: {number}, {claim}: {}", if *kept { "kept" } else { "broken" }));
            }
        }
        found.push((name, kept));
    }
    let names = found.iter().map(|(name, _)| name.as_str());
    let mut table = Table::new("stores", &["claim"].into_iter().chain(names).collect::<Vec<_>>());
    for (number, (claim, _)) in CLAIMS.iter().enumerate() {
        let verdicts = found.iter().map(|(_, kept)| if kept[number] { "yes" } else { "**no**" }.to_owned());
        table.row(&[format!("{}. {claim}", number + 1)].into_iter().chain(verdicts).collect::<Vec<_>>());
    }
    let result = format!("{} stores, {} surprises", found.len(), wrong.len());
    println!("{result}: {:?}", table.write(&std::env::temp_dir(), 0, &result).unwrap());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What was put in one request and in parts is said again by a head and by a get.
async fn attributes(source: Source, at: String) {
    let store = source.backend();
    let mut said = Attributes::NONE;
    (said.kind, said.mode, said.put_id) = (Kind::Link, Some(0o777), Some("id".to_owned()));
    let is_local = store.identity().starts_with("directory");
    let keys =
        if is_local { vec![format!("{at}whole")] } else { vec![format!("{at}whole"), format!("{at}parts")] };
    for key in &keys {
        if key.ends_with("whole") {
            store.put(key, "text".into(), &said, Condition::Always).await.unwrap();
        } else {
            let upload = store.begin(key, &said).await.unwrap();
            upload.put("text".into()).await.unwrap();
            upload.complete(Condition::Always).await.unwrap();
        }
        let found = [
            store.head(key).await.unwrap().unwrap().attributes,
            store.get(key, None).await.unwrap().attributes,
        ];
        for found in found {
            assert_eq!(found.kind, Kind::Link, "{key}");
            assert!(is_local || found == said, "{key}: {found:?}");
        }
    }
    // The same bytes with other words.
    store.put(&keys[0], "text".into(), &Attributes::NONE, Condition::Always).await.unwrap();
    assert_eq!(store.head(&keys[0]).await.unwrap().unwrap().attributes.kind, Kind::File);
}

async fn marker(source: Source, at: String) {
    let store = source.backend();
    if !store.abilities().markers {
        return;
    }
    let (key, mut said) = (format!("{at}d/"), Attributes::NONE);
    said.kind = Kind::Directory;
    store.put(&key, "".into(), &said, Condition::Always).await.unwrap();
    assert_eq!(keys(store, &at).await, [key.as_str()]);
    assert!(store.head(&format!("{at}d")).await.is_ok_and(|found| found.is_none()));
    assert_eq!(store.head(&key).await.unwrap().unwrap().size, 0);
    store.delete(&key).await.unwrap();
    assert!(keys(store, &at).await.is_empty());
}

/// Keys that a path type rewrites or does not take.
const PLANTED: [&str; 7] = ["../x", "a/../b", "a//b", "dir/", "/abs", "\u{1}", "tab\t"];

#[tokio::test]
async fn store_that_lists_raw_keys_lists_every_planted_key() {
    let bucket = Bucket::new(|_, _| Act::Serve);
    let mut planted: Vec<_> = PLANTED.iter().map(|key| format!("raw/{key}")).collect();
    planted.iter().for_each(|key| bucket.plant(key));
    planted.sort();
    for (cloud, source) in bucket.clouds() {
        assert!(source.backend().abilities().raw_keys, "{cloud}");
        assert_eq!(keys(source.backend(), "raw/").await, planted, "{cloud}");
        for key in ["raw/a//b", "raw/dir/", "raw//abs", "raw/tab\t"] {
            assert_eq!(read(source.backend(), key).await.unwrap(), b"planted", "{cloud} {key}");
        }
        for key in ["raw/../x", "raw/a/../b"] {
            let error = source.backend().get(key, None).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidPath, "{cloud} {key}");
        }
    }

    // The control: the store's own client ends its listing at one of them, and says that it may.
    let plain = Source::new(Arc::new(bucket.builder().build().unwrap()));
    let listed: Result<Vec<_>, _> = plain.backend().list("raw/", Retry::default()).try_collect().await;
    assert!(listed.is_err() && !plain.backend().abilities().raw_keys);

    let (home, source) = support::local();
    let names: [&[u8]; 4] = [b"\xff", b"tab\t", b"#1", b"back\\slash"];
    std::fs::create_dir(home.join("raw")).unwrap();
    for name in names {
        std::fs::write(home.join("raw").join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    let listed: Vec<_> = source.backend().list("raw/", Retry::default()).try_collect().await.unwrap();
    let listed: BTreeSet<Vec<u8>> = listed.into_iter().map(|object| object.key).collect();
    assert!(source.backend().abilities().raw_keys);
    assert_eq!(listed, names.map(|name| [b"raw/", name].concat()).into());
}

#[tokio::test]
async fn link_of_any_name_takes_the_place_of_another_in_a_directory() {
    let (home, source) = support::local();
    let mut said = Attributes::NONE;
    said.kind = Kind::Link;
    for name in ["l".repeat(255), format!("d/{}", "l".repeat(255))] {
        for text in ["one", "two"] {
            source.backend().put(&name, text.into(), &said, Condition::Always).await.unwrap();
            assert_eq!(std::fs::read_link(home.join(&name)).unwrap().to_str(), Some(text));
        }
    }
}

#[test]
fn a_directory_that_cannot_be_opened_is_not_named_in_the_error() {
    let error = Source::local("/nowhere/in/particular", beneath::ambient_authority()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!format!("{error} {error:?}").contains("nowhere"), "{error:?}");
}

async fn bytes(body: Body) -> Vec<u8> {
    body.chunks.try_collect::<Vec<_>>().await.unwrap().concat()
}

async fn read(store: &dyn Backend, key: &str) -> Option<Vec<u8>> {
    match store.get(key, None).await {
        Ok(body) => Some(bytes(body).await),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}

async fn put(store: &dyn Backend, key: &str, content: impl Into<Vec<u8>>) -> Option<String> {
    store.put(key, content.into().into(), &Attributes::NONE, Condition::Always).await.unwrap()
}

async fn keys(store: &dyn Backend, prefix: &str) -> Vec<String> {
    let listed: Vec<_> = store.list(prefix, Retry::default()).try_collect().await.unwrap();
    let mut keys: Vec<_> = listed.into_iter().map(|object| String::from_utf8(object.key).unwrap()).collect();
    keys.sort();
    keys
}

fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::Busy)
}

async fn put_and_get(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}d/a"));
    for content in [&b""[..], b"one", &[0, 255, b'\n', b'\r'], &[7; 300_000]] {
        put(store, &key, content).await;
        let body = store.get(&key, None).await.unwrap();
        assert!(body.size.is_none_or(|size| size == content.len() as u64));
        assert!(bytes(body).await == content);
    }
}

async fn missing(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}none"));
    assert_eq!(store.get(&key, None).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(store.head(&key).await.unwrap().is_none());
    assert!(keys(store, &at).await.is_empty());
    let error = store.get(&key, None).await.unwrap_err();
    assert_eq!(error.subject().unwrap(), std::path::Path::new(&key), "{error}");
}

async fn one_version(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}a"));
    let version = put(store, &key, "content").await.unwrap();
    let head = store.head(&key).await.unwrap().unwrap();
    let listed: Vec<_> = store.list(&at, Retry::default()).try_collect().await.unwrap();
    let body = store.get(&key, Some(&version)).await.unwrap();
    assert_eq!((head.size, listed.len(), listed[0].size), (7, 1, 7));
    assert_eq!(head.etag.as_deref(), Some(version.as_str()));
    assert_eq!(listed[0].etag.as_deref(), Some(version.as_str()));
    assert_eq!(body.etag.as_deref(), Some(version.as_str()));
}

async fn put_absent(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}a"));
    store.put(&key, "first".into(), &Attributes::NONE, Condition::Absent).await.unwrap();
    let error = store.put(&key, "second".into(), &Attributes::NONE, Condition::Absent).await.unwrap_err();
    assert!(is_conflict(&error), "{error}");
    assert_eq!(read(store, &key).await.unwrap(), b"first");
}

async fn put_unchanged(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}a"));
    let first = put(store, &key, "first").await.unwrap();
    let second = match store.put(&key, "second".into(), &Attributes::NONE, Condition::Unchanged(&first)).await
    {
        Ok(version) => version.unwrap(),
        Err(error) => {
            assert_ne!(store.abilities().put.unchanged, Compares::InOneStep);
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert_eq!(read(store, &key).await.unwrap(), b"first");
            return;
        }
    };
    assert_ne!(first, second);
    let error =
        store.put(&key, "third".into(), &Attributes::NONE, Condition::Unchanged(&first)).await.unwrap_err();
    assert!(is_conflict(&error), "{error}");
    assert_eq!(read(store, &key).await.unwrap(), b"second");
    let gone = store
        .put(&format!("{at}none"), "x".into(), &Attributes::NONE, Condition::Unchanged(&first))
        .await
        .unwrap_err();
    assert!(is_conflict(&gone) || gone.kind() == ErrorKind::NotFound, "{gone}");
    assert_eq!(read(store, &format!("{at}none")).await, None);
}

async fn race_to_create(source: Source, at: String) {
    let racers: Vec<_> = (0..8_u8)
        .map(|racer| {
            let (source, key) = (source.clone(), format!("{at}a"));
            tokio::spawn(async move {
                source
                    .backend()
                    .put(&key, vec![racer; 1000].into(), &Attributes::NONE, Condition::Absent)
                    .await
            })
        })
        .collect();
    let mut winners = Vec::new();
    for (racer, result) in racers.into_iter().enumerate() {
        match result.await.unwrap() {
            Ok(_) => winners.push(racer),
            Err(error) => assert!(is_conflict(&error), "{error}"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(read(source.backend(), &format!("{at}a")).await.unwrap(), vec![winners[0] as u8; 1000]);
}

async fn rest(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}a"));
    let version = put(store, &key, "0123456789").await.unwrap();
    if let Some(body) = store.rest(&key, &version, 4).await.unwrap() {
        assert_eq!((body.size, body.etag.as_deref()), (Some(10), Some(version.as_str())));
        assert_eq!(bytes(body).await, b"456789");
    }
    put(store, &key, "abcdefghij").await;
    assert!(store.rest(&key, &version, 4).await.unwrap().is_none(), "another version");
}

async fn list(source: Source, at: String) {
    let store = source.backend();
    let (inside, beside) = (format!("{at}p/"), format!("{at}p0/a"));
    let wanted: Vec<_> = ["a", "a-b", "a/b/c", "z"].map(|path| format!("{inside}{path}")).into();
    // A directory cannot hold `a` and `a/b/c`.
    let flat: Vec<_> = wanted.iter().filter(|key| !key.ends_with("/a")).cloned().collect();
    for key in flat.iter().chain([&beside]) {
        put(store, key, "x").await;
    }
    assert_eq!(keys(store, &inside).await, flat);
    assert_eq!(keys(store, &format!("{at}q/")).await, Vec::<String>::new());
}

async fn list_many(source: Source, at: String) {
    let wanted: Vec<_> = (0..1100).map(|n| format!("{at}{n:04}")).collect();
    futures_util::stream::iter(wanted.iter().map(Ok::<_, ()>))
        .try_for_each_concurrent(16, |key| {
            let source = source.clone();
            async move {
                put(source.backend(), key, "x").await;
                Ok(())
            }
        })
        .await
        .unwrap();
    assert!(keys(source.backend(), &at).await == wanted);
}

async fn odd_keys(source: Source, at: String) {
    let store = source.backend();
    let mut wanted: Vec<_> = AWKWARD.map(|path| format!("{at}{path}")).into();
    for key in &wanted {
        put(store, key, key.as_bytes()).await;
    }
    wanted.sort();
    assert_eq!(keys(store, &at).await, wanted);
    for key in &wanted {
        assert_eq!(read(store, key).await.as_deref(), Some(key.as_bytes()));
        assert_eq!(store.head(key).await.unwrap().unwrap().size, key.len() as u64);
        store.delete(key).await.unwrap();
    }
    assert!(keys(store, &at).await.is_empty());
}

async fn hostile_keys(source: Source, at: String) {
    let store = source.backend();
    put(store, &format!("{at}a/b"), "mine").await;
    for path in ["a//b", "./a/b", "a/./b", "c/../a/b", "a/b/", "../escaped", ""] {
        let key = format!("{at}{path}");
        let put = store.put(&key, "theirs".into(), &Attributes::NONE, Condition::Always).await;
        assert!(put.is_err(), "{path}");
        // Where it can be a directory, it is one that is not there.
        if key.ends_with('/') && store.abilities().markers {
            assert!(path.is_empty() || !matches!(store.head(&key).await, Ok(Some(_))), "{path}");
            continue;
        }
        assert!(store.delete(&key).await.is_err(), "{path}");
        assert!(store.head(&key).await.is_err(), "{path}");
    }
    assert_eq!(keys(store, &at).await, [format!("{at}a/b")]);
    assert_eq!(read(store, &format!("{at}a/b")).await.unwrap(), b"mine");
}

async fn delete(source: Source, at: String) {
    let store = source.backend();
    let (one, two) = (format!("{at}one"), format!("{at}two"));
    put(store, &one, "1").await;
    put(store, &two, "2").await;
    for _ in 0..2 {
        store.delete(&one).await.unwrap();
        assert_eq!(keys(store, &at).await, std::slice::from_ref(&two));
    }
    assert_eq!((read(store, &one).await, read(store, &two).await), (None, Some(b"2".to_vec())));
}

async fn delete_if(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}a"));
    let version = put(store, &key, "one").await.unwrap();
    if store.abilities().delete == Compares::Never {
        assert_eq!(store.delete_if(&key, &version).await.unwrap_err().kind(), ErrorKind::Unsupported);
        return;
    }
    let second = put(store, &key, "another").await.unwrap();
    assert!(is_conflict(&store.delete_if(&key, &version).await.unwrap_err()));
    assert_eq!(read(store, &key).await.unwrap(), b"another");
    store.delete_if(&key, &second).await.unwrap();
    assert_eq!(read(store, &key).await, None);
    // What is not there is gone or has changed.
    assert!(store.delete_if(&key, &second).await.err().is_none_or(|error| is_conflict(&error)));
}

fn doomed(key: &str, etag: Option<String>) -> Doomed {
    Doomed { key: key.to_owned(), etag }
}

async fn delete_many(source: Source, at: String) {
    let store = source.backend();
    let [one, two, odd, stays] =
        ["one", "two", "d/a&b <c> 'd' \"e\" %41+é", "stays"].map(|name| format!("{at}{name}"));
    for key in [&one, &two, &odd, &stays] {
        put(store, key, "x").await;
    }
    let objects = [&one, &odd, &format!("{at}none"), &two].map(|key| doomed(key, None));
    for _ in 0..2 {
        let outcomes = store.delete_many(&objects).await.unwrap();
        assert!(outcomes.len() == 4 && outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert_eq!(keys(store, &at).await, std::slice::from_ref(&stays));
    }
}

async fn delete_many_if(source: Source, at: String) {
    let store = source.backend();
    if store.abilities().delete_many == Compares::Never {
        return;
    }
    let [one, two] = ["one", "two"].map(|name| format!("{at}{name}"));
    let version = put(store, &one, "1").await;
    put(store, &two, "2").await;
    let outcomes = store.delete_many(&[doomed(&two, version.clone()), doomed(&one, version)]).await.unwrap();
    assert!(is_conflict(outcomes[0].as_ref().unwrap_err()) && outcomes[1].is_ok(), "{outcomes:?}");
    assert_eq!(keys(store, &at).await, [two]);
}

async fn parts(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}d/large"));
    let size = store.abilities().part as usize;
    let content: Vec<u8> = (0..size + 1000).map(|n| (n / 4096) as u8).collect();
    let upload = store.begin(&key, &Attributes::NONE).await.unwrap();
    for part in content.chunks(size) {
        upload.put(part.to_vec().into()).await.unwrap();
        assert!(store.head(&key).await.unwrap().is_none());
    }
    let version = upload.complete(Condition::Absent).await.unwrap();
    let head = store.head(&key).await.unwrap().unwrap();
    assert_eq!((head.size, head.etag), (content.len() as u64, version));
    assert!(read(store, &key).await.unwrap() == content);
}

async fn discard(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}large"));
    let upload = store.begin(&key, &Attributes::NONE).await.unwrap();
    upload.put(vec![1; store.abilities().part as usize].into()).await.unwrap();
    upload.abort().await.unwrap();
    assert!(store.head(&key).await.unwrap().is_none());

    let lost = store.begin(&key, &Attributes::NONE).await.unwrap();
    lost.put(vec![1; 1000].into()).await.unwrap();
    if let Some(id) = lost.id() {
        for _ in 0..2 {
            store.abort(&key, id).await.unwrap();
        }
    }
    drop(lost);
    assert!(keys(store, &at).await.is_empty());
}

async fn complete_absent(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}large"));
    if store.abilities().complete.absent == Compares::Never {
        return;
    }
    let upload = store.begin(&key, &Attributes::NONE).await.unwrap();
    upload.put(vec![1; 1000].into()).await.unwrap();
    put(store, &key, "first").await;
    let error = upload.complete(Condition::Absent).await.unwrap_err();
    assert!(is_conflict(&error), "{error}");
    assert_eq!(read(store, &key).await.unwrap(), b"first");
    upload.abort().await.unwrap();
}

async fn large(source: Source, at: String) {
    let (store, key) = (source.backend(), format!("{at}large"));
    let size = store.abilities().whole.min(17 << 20) as usize;
    let content: Vec<u8> = (0..size).map(|n| (n / 1021) as u8).collect();
    put(store, &key, content.clone()).await;
    assert_eq!(store.head(&key).await.unwrap().unwrap().size, size as u64);
    assert!(read(store, &key).await.unwrap() == content);
}

async fn sign(source: Source, at: String) {
    let store = source.backend();
    match store.sign(&format!("{at}a"), Duration::from_secs(60), None).await {
        Ok(url) => assert!(store.abilities().signs && url.starts_with("http"), "{url}"),
        Err(error) => {
            assert!(!store.abilities().signs);
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
    }
}
