//! What `rewrite_message` costs and keeps, whatever a sender writes.

use std::fs;
use std::process::Command;
use std::time::Duration;

use beneath::session::{MessageLimits, Outcome, SessionsConfig, rewrite_message};
use beneath::{ErrorKind, MessageId};
use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::Value;

use crate::support::{Stage, kinds, names};

const VARIABLE: &str = "BENEATH_MESSAGE_CHILD";
/// What an attachment that was tried may add to the text: its name, its path, or why it was refused.
const ADDED: usize = 8 << 10;
const FILES: usize = 4;

fn stage() -> Stage {
    Stage::with_config(
        SessionsConfig::default().with_inbox(MessageLimits::default().with_files(FILES as u64)),
    )
}

fn id() -> MessageId {
    MessageId::new("42")
}

/// The kinds of excess that a message can be made of.
const EXCESSES: [&str; 15] = [
    "numbers for data",
    "attachments",
    "forged results",
    "elements without data",
    "members",
    "names",
    "data",
    "results",
    "escaped keys",
    "a long key",
    "a long escaped key",
    "a long name",
    "arrays",
    "depth",
    "top members",
];

/// A message of about `length` bytes.
fn hostile(excess: &str, length: usize) -> String {
    let repeated = |part: &str| vec![part; (length / (part.len() + 1)).max(1)].join(",");
    let listed = |element: &str| format!(r#"{{"attachments":[{}]}}"#, repeated(element));
    let one = |member: &str| format!(r#"{{"attachments":[{{{},"data":"aGk="}}]}}"#, repeated(member));
    let long = || "k".repeat(length);
    let half = length / 2;
    match excess {
        "numbers for data" => listed(r#"{"data":1}"#),
        "attachments" => listed(r#"{"data":"aGk="}"#),
        "forged results" => listed(r#"{"data":1,"refused":0,"localPath":""}"#),
        "elements without data" => listed("{}"),
        "members" => one(r#""k":0"#),
        "names" => one(r#""name":0"#),
        "data" => one(r#""data":0"#),
        "results" => one(r#""localPath":0,"refused":0"#),
        "escaped keys" => one(r#""d\u0061t":0"#),
        "a long key" => one(&format!(r#""{}":0"#, long())),
        "a long escaped key" => one(&format!(r#""\u0061{}":0"#, long())),
        "a long name" => one(&format!(r#""name":"\u0061{}""#, long())),
        "arrays" => format!("{{{}}}", repeated(r#""attachments":[{"data":1}]"#)),
        "depth" => one(&format!(r#""deep":{}{}"#, "[".repeat(half), "]".repeat(half))),
        "top members" => format!("{{{}}}", repeated(r#""k":0"#)),
        _ => panic!("no such excess: {excess}"),
    }
}

#[test]
fn the_text_grows_by_the_attachments_that_were_tried_and_no_more() {
    for what in EXCESSES {
        let json = hostile(what, 200_000);
        let stage = stage();
        let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
        assert!(delivery.outcomes().len() <= FILES + 1, "{what}: {} outcomes", delivery.outcomes().len());
        assert!(rewritten.len() <= json.len() + ADDED * (FILES + 1), "{what}: {} bytes", rewritten.len());
        assert!(!rewritten.contains(r#""data""#), "{what}");
        let _: Value = serde_json::from_str(&rewritten).unwrap_or_else(|error| match what {
            "depth" => Value::Null,
            _ => panic!("{what}: {error}"),
        });
    }
}

#[test]
fn attachments_past_the_limit_share_one_refusal() {
    let stage = stage();
    let past = r#"{"name":"n","x":1.50,"data":"aGk=","localPath":"/etc/passwd","refused":{}}"#;
    let json = format!(r#"{{"attachments":[{}]}}"#, vec![past; 1000].join(","));
    let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
    assert_eq!(kinds(delivery.refused()), [ErrorKind::TooMany]);
    assert_eq!(delivery.not_tried(), 996);
    assert!(!delivery.is_complete());
    assert_eq!(names(&stage.guest("inbox/42")).len(), FILES);

    let value: Value = serde_json::from_str(&rewritten).unwrap();
    let elements = value["attachments"].as_array().unwrap();
    assert!(elements[..FILES].iter().all(|element| element.get("localPath").is_some()));
    assert_eq!(elements[FILES]["refused"]["kind"], "TooMany");
    let counted = r#"deliver "inbox/42": 996 attachments more than the limit of 4"#;
    assert_eq!(elements[FILES]["refused"]["reason"], counted);
    for element in &elements[FILES + 1..] {
        assert_eq!(*element, serde_json::json!({ "name": "n", "x": 1.5 }));
    }
}

#[test]
fn memory_is_linear_in_the_text_whatever_it_holds() {
    for what in EXCESSES {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "message_bounds::child", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, what)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{what}: {said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("bytes more"), "{what}: nothing was measured: {said}");
    }
}

/// Not a test by itself: what the children run.
#[test]
fn child() {
    let Ok(what) = std::env::var(VARIABLE) else { return };
    let json = hostile(&what, 2 << 20);
    let stage = stage();
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak();
    let (rewritten, _) = rewrite_message(&stage.session.inbox(), &id(), &json);
    let more = peak().saturating_sub(before);
    println!("{what}: {} bytes, {more} bytes more, {} bytes out", json.len(), rewritten.len());
    assert!(more <= 4 * json.len() as u64 + (4 << 20), "{what}: {more} bytes for {}", json.len());
}

/// The most memory resident at any time since it was reset.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

#[test]
fn time_is_linear_in_the_text_whatever_it_holds() {
    for what in EXCESSES {
        let [short, long] = [1 << 15, 1 << 19].map(|length| {
            let json = hostile(what, length);
            let stage = stage();
            let tries = (0..3).map(|_| {
                let start = own_time();
                let (_, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
                let spent = own_time() - start;
                let _ = delivery.rollback();
                spent
            });
            tries.min().unwrap()
        });
        // Sixteen times the text: a square would be 256 times as long.
        let floor = Duration::from_millis(2);
        assert!(long < 80 * short.max(floor), "{what}: {short:?}, then {long:?}");
    }
}

/// What this thread alone has computed, so that a busy machine does not count.
fn own_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap(), u32::try_from(now.tv_nsec).unwrap())
}

/// A value that is not ours to touch.
fn any_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("-0".to_owned()),
        Just("1.50e+2".to_owned()),
        Just(r#""data""#.to_owned()),
        Just(r#""aGk=""#.to_owned()),
        string_regex(r#""[ a-c\{\}\[\],:/é]{0,8}""#).unwrap(),
        Just(r#""\u0022,\"data\":\n\\""#.to_owned()),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(|all| format!("[{}]", all.join(" , "))),
            proptest::collection::vec((any_key(), inner), 0..3).prop_map(object),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 9] =
        ["data", "name", "localPath", "refused", "encoding", "type", "mimeType", "mime", "attachments"];
    prop_oneof![
        3 => proptest::sample::select(&KNOWN[..]).prop_map(|key| format!("\"{key}\"")),
        2 => Just(r#""d\u0061ta""#.to_owned()),
        2 => Just(r#""\u006eame""#.to_owned()),
        2 => string_regex(r#""[a-d]{0,4}""#).unwrap(),
        1 => Just(r#""\ud83d\ude00""#.to_owned()),
    ]
}

fn object(members: Vec<(String, String)>) -> String {
    let members: Vec<String> = members.into_iter().map(|(key, value)| format!("\t{key} : {value}")).collect();
    format!("{{{}\n}}", members.join(","))
}

fn any_attachment() -> impl Strategy<Value = String> {
    let data = prop_oneof![Just(r#""aGk=""#.to_owned()), any_value()];
    let member = prop_oneof![
        1 => data.prop_map(|data| (r#""data""#.to_owned(), data)),
        3 => (any_key(), any_value()),
    ];
    prop_oneof![
        4 => proptest::collection::vec(member, 0..5).prop_map(object),
        1 => any_value(),
    ]
}

fn any_message() -> impl Strategy<Value = String> {
    let attachments = proptest::collection::vec(any_attachment(), 0..8)
        .prop_map(|all| (r#""attachments""#.to_owned(), format!("[ {} ]", all.join(", "))));
    let member = prop_oneof![2 => attachments, 1 => (any_key(), any_value())];
    proptest::collection::vec(member, 0..4).prop_map(object)
}

/// Objects as lists of members, so that repeated keys are compared too.
#[derive(Debug, PartialEq)]
enum Parsed {
    Leaf(Value),
    List(Vec<Parsed>),
    Object(Vec<(String, Parsed)>),
}

impl<'de> serde::Deserialize<'de> for Parsed {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Parsed;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("any value")
            }
            fn visit_unit<E>(self) -> Result<Parsed, E> {
                Ok(Parsed::Leaf(Value::Null))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Parsed, E> {
                Ok(Parsed::Leaf(number.into()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Parsed, E> {
                Ok(Parsed::Leaf(number.into()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Parsed, E> {
                Ok(Parsed::Leaf(text.into()))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut all: A) -> Result<Parsed, A::Error> {
                let mut list = Vec::new();
                while let Some(element) = all.next_element()? {
                    list.push(element);
                }
                Ok(Parsed::List(list))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut all: A) -> Result<Parsed, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = all.next_entry()? {
                    members.push(member);
                }
                Ok(Parsed::Object(members))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// What must be left of a message when the members that are ours are taken out; and how many attachments it has.
fn without_ours(message: &mut Parsed, outcomes: &[Outcome]) -> usize {
    let mut seen = 0;
    let Parsed::Object(members) = message else { panic!("{message:?}") };
    for (_, value) in members.iter_mut().filter(|(key, _)| key == "attachments") {
        let Parsed::List(elements) = value else { continue };
        for element in elements {
            let Parsed::Object(members) = element else { continue };
            if !members.iter().any(|(key, _)| key == "data") {
                continue;
            }
            let saved = outcomes.get(seen).is_some_and(|outcome| outcome.file().is_some());
            seen += 1;
            let is_ours =
                |key: &str| ["data", "localPath", "refused"].contains(&key) || (saved && key == "name");
            members.retain(|(key, _)| !is_ours(key));
        }
    }
    seen
}

/// The members of each attachment that say what became of it must be there once, and nowhere else.
fn check_ours(before: &Parsed, after: &mut Parsed, outcomes: &[Outcome]) {
    let (Parsed::Object(before), Parsed::Object(after)) = (before, after) else { panic!("not objects") };
    let mut outcomes = outcomes.iter();
    for ((key, old), (_, new)) in before.iter().zip(after) {
        let (Parsed::List(old), Parsed::List(new)) = (old, new) else { continue };
        for (old, new) in old.iter().zip(new).filter(|_| key == "attachments") {
            let (Parsed::Object(old), Parsed::Object(new)) = (old, new) else { continue };
            if !old.iter().any(|(key, _)| key == "data") {
                continue;
            }
            let text = |text: &str| vec![Parsed::Leaf(text.into())];
            let mut take = |wanted: &str| -> Vec<Parsed> {
                new.extract_if(.., |(key, _)| key == wanted).map(|(_, value)| value).collect()
            };
            assert_eq!(take("data"), []);
            match outcomes.next() {
                Some(Outcome::Saved(file) | Outcome::AlreadySaved(file)) => {
                    assert_eq!(take("name"), text(file.name.as_str()));
                    assert_eq!(take("localPath"), text(&file.guest_path));
                    assert_eq!(take("refused"), []);
                }
                Some(outcome) => {
                    assert!(outcome.refusal().is_some());
                    assert_eq!((take("refused").len(), take("localPath").len()), (1, 0));
                }
                None => assert_eq!((take("refused").len(), take("localPath").len()), (0, 0)),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_but_our_members_stays_as_it_was(json in any_message()) {
        let stage = stage();
        let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
        prop_assert!(rewritten.len() <= json.len() + ADDED * (FILES + 1));
        prop_assert!(delivery.outcomes().len() <= FILES + 1);

        let mut before: Parsed = serde_json::from_str(&json).unwrap();
        let mut after: Parsed = serde_json::from_str(&rewritten).unwrap();
        check_ours(&before, &mut after, delivery.outcomes());
        let tried = without_ours(&mut before, delivery.outcomes());
        prop_assert_eq!(&before, &after, "{} became {}", json, rewritten);
        let files = delivery.files().count() as u64;
        let refused = delivery.refused().count() as u64;
        let shared = u64::from(delivery.not_tried() > 0);
        prop_assert_eq!(files + refused - shared + delivery.not_tried(), tried as u64);
    }

    #[test]
    fn any_text_comes_back_whole_or_with_attachments_taken_out(json in any::<String>()) {
        let stage = stage();
        let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
        prop_assert!(!delivery.outcomes().is_empty() || rewritten == json);
    }
}
