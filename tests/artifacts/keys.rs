//! Keys: what is put is what is listed, on every store.

use beneath::artifacts::{Prefix, Source};
use beneath::{GuestPath, SessionId};
use futures_util::TryStreamExt as _;

use crate::{servers, support};

/// Paths that a path type, an URL or a form would rewrite.
pub(crate) const AWKWARD: [&str; 22] = [
    "plain.txt",
    "a b/c d.txt",
    "100%.txt",
    "%41.txt",
    "%2e%2e/x",
    "a%2Fb",
    "a+b.txt",
    "a+b c%20d.txt",
    "caf\u{e9}.txt",
    "cafe\u{301}.txt",
    "報告/年度.md",
    "🦀.rs",
    ".env",
    "~backup",
    "#tag",
    "[x]{y}^z`",
    "a&b=c;d.txt",
    "it's (1), ok!.txt",
    "$HOME",
    "@at",
    "deep/er/and/deep/er/still.txt",
    "\u{ff0e}\u{ff0e}",
];

/// Names that Linux takes and a store would not, or not as they are.
const ODD: [&str; 6] = ["Q3: plan?.md", "aux.rs", "...", "a \n/b", "%=x", "trailing ./x"];

#[tokio::test]
async fn every_path_round_trips_on_every_store() {
    for (name, source) in support::every_store().await {
        let prefix = Prefix::session(&SessionId::new("s 1+é%"));
        let mut paths: Vec<GuestPath> =
            AWKWARD.iter().chain(&ODD).map(|raw| GuestPath::new(raw).unwrap()).collect();
        for path in &paths {
            let key = prefix.key(path).unwrap();
            support::put_key(&source, &key, path.as_bytes()).await;
        }
        let listed: Vec<_> = source.list(&prefix).try_collect().await.unwrap();
        let mut found: Vec<GuestPath> =
            listed.iter().map(|object| prefix.path(&object.key).unwrap()).collect();
        found.sort();
        paths.sort();
        assert_eq!(found, paths, "{name}");
    }
}

#[tokio::test]
async fn hostile_keys_are_listed_verbatim_and_stop_nothing() {
    let Some(server) = servers::moto() else { return };
    let (bucket, source) = server.bucket().await;
    let hostile: [&[u8]; 8] =
        [b"../x", b"a/../b", b"a//b", b"dir/", b"/abs", b"\x01", b"tab\t", b"back\\slash"];
    let prefix = Prefix::session(&SessionId::new("s1"));
    let mut keys: Vec<Vec<u8>> =
        hostile.iter().map(|rest| [prefix.as_str().as_bytes(), rest].concat()).collect();
    keys.extend((0..1100).map(|n| format!("{prefix}good-{n:04}").into_bytes()));
    for key in &keys {
        assert!(server.put_raw(&bucket, key, b"x"), "{key:?}");
    }
    let listed: Vec<_> = source.list(&prefix).try_collect().await.unwrap();
    let mut found: Vec<Vec<u8>> = listed.into_iter().map(|object| object.key).collect();
    found.sort();
    keys.sort();
    assert_eq!(found, keys);

    // The control: the store's own listing ends at the first of them.
    let plain = Source::new(std::sync::Arc::new(server.builder(&bucket).build().unwrap()));
    let plain: Result<Vec<_>, _> = plain.list(&prefix).try_collect().await;
    assert!(plain.is_err());
}
