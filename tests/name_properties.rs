//! Names, paths and ids for any input, not only for those somebody thought of.

use std::collections::HashSet;

use beneath::{AttachmentHint, MessageId, SafeName, SafePath, SessionId, safe_name};
use beneath_kit::rig::seed;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Text made of the pieces that the rules are about.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => "[a-zA-Z0-9_-]{1,8}",
        4 => prop::sample::select(vec![
            ".", "..", "/", "\\", " ", "~", ":", "*", "?", "\"", "\0", "\n", "\t", "\u{7f}", "\u{85}", "\u{a0}", "\u{ad}",
            "\u{200b}", "\u{202e}", "\u{2800}", "\u{fffc}", "\u{13441}", "\u{2028}", "\u{3000}", "\u{3164}", "\u{fe0f}", "\u{feff}", "\u{fffe}", "\u{e0041}", "é",
            "e\u{301}", "報", "😀", "¹", "$", "-", "=",
        ])
        .prop_map(str::to_owned),
        2 => prop::sample::select(vec!["CON", "nul", "Aux", "COM1", "lpt²", "CONIN$", "workspace", ".png", ".tar.gz"])
            .prop_map(str::to_owned),
        1 => prop::sample::select(vec!["x", "é", "報", "😀", "."]).prop_flat_map(|unit| {
            (60usize..300).prop_map(move |times| unit.repeat(times))
        }),
        1 => "[0-9a-f]{32}".prop_map(|digits| format!("~{digits}")),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

fn accepted() -> impl Strategy<Value = SafeName> {
    hostile().prop_map(|raw| SafeName::repair(&raw))
}

fn path() -> impl Strategy<Value = SafePath> {
    prop::collection::vec((accepted(), any::<bool>()), 1..6).prop_filter_map("fits", |names| {
        let components: Vec<String> = names
            .iter()
            .map(|(name, dotted)| if *dotted { format!(".{name}") } else { name.to_string() })
            .collect();
        SafePath::new(&components.join("/")).ok()
    })
}

/// What a name must be for each of its readers, apart from the rules that make it so.
fn survives_its_readers(name: &str) {
    let header = format!("attachment; filename=\"{name}\"");
    assert_eq!(header.split('"').collect::<Vec<_>>(), ["attachment; filename=", name, ""]);
    let line = format!("saved {name} to disk");
    assert_eq!(line.lines().collect::<Vec<_>>(), [line.as_str()]);
    assert!(!line.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')));
    let json = serde_json::Value::from(name).to_string();
    assert_eq!(json, format!("\"{name}\""));
    assert_eq!(std::path::Path::new(name).file_name(), Some(name.as_ref()));
    assert_eq!(name.trim(), name);
}

fn cases(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(seed::of_properties());
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn any_bytes_are_judged_without_panic(raw in prop::collection::vec(any::<u8>(), 0..600)) {
        let name = safe_name(&raw);
        prop_assert!(safe_name(SafeName::repair(&raw).as_str()).is_ok());
        if let Ok(name) = name {
            prop_assert_eq!(name.as_str().as_bytes(), &raw[..]);
        }
    }

    #[test]
    fn any_text_is_judged_without_panic(raw in any::<String>(), root in any::<String>(), index in any::<usize>()) {
        let _ = SafePath::new(&raw);
        let _ = MessageId::from_component(&raw);
        let hint = AttachmentHint { name: Some(&raw), mime: Some(&root), kind: Some(&root) };
        prop_assert!(safe_name(hint.to_name(index).as_str()).is_ok());
    }

    #[test]
    fn accepted_names_survive_header_json_and_log_line(raw in hostile()) {
        if let Ok(name) = safe_name(&raw) {
            survives_its_readers(name.as_str());
        }
        survives_its_readers(SafeName::repair(&raw).as_str());
        survives_its_readers(MessageId::new(&raw).as_str());
    }

    #[test]
    fn repaired_names_are_accepted_and_repaired_to_themselves(raw in hostile()) {
        let repaired = SafeName::repair(&raw);
        prop_assert_eq!(&safe_name(repaired.as_str()).unwrap(), &repaired);
        prop_assert_eq!(SafeName::repair(repaired.as_str()), repaired);
    }

    #[test]
    fn safe_names_are_repaired_to_themselves(raw in hostile()) {
        if let Ok(name) = safe_name(&raw) {
            prop_assert_eq!(SafeName::repair(&raw), name);
        }
    }

    #[test]
    fn repair_keeps_the_extension_when_there_is_room(stem in hostile(), extension in "[a-zA-Z0-9]{1,200}") {
        let repaired = SafeName::repair(&format!("{stem}.{extension}"));
        prop_assert_eq!(repaired.extension(), Some(extension.as_str()));
    }

    #[test]
    fn different_ids_never_share_a_name(first in hostile(), second in hostile()) {
        let twins = [
            first.clone(), second.clone(), first.replace('/', "\\"), first.replace('\\', "/"), first.to_uppercase(),
            first.to_lowercase(), format!("{first}/"), format!(" {first}"), MessageId::new(&first).as_str().to_owned(),
            MessageId::new(&second).as_str().to_owned(), MessageId::new(&first).as_str().to_uppercase(),
            MessageId::new(MessageId::new(&first).as_str()).as_str().to_owned(),
        ];
        let raws: HashSet<&String> = twins.iter().collect();
        let names: HashSet<MessageId> = raws.iter().map(MessageId::new).collect();
        prop_assert_eq!(names.len(), raws.len(), "{:?}", raws);
    }

    #[test]
    fn ids_are_deterministic_safe_and_read_back(raw in hostile()) {
        let id = MessageId::new(&raw);
        prop_assert_eq!(&MessageId::new(&raw), &id);
        prop_assert_eq!(&safe_name(id.as_str()).unwrap(), id.as_name());
        prop_assert_eq!(&MessageId::from_component(id.as_str()).unwrap(), &id);
        prop_assert_eq!(id.is_verbatim(), id.as_str() == raw);
        let session = SessionId::new(&raw);
        prop_assert_eq!(session.as_name(), id.as_name());
    }

    #[test]
    fn names_read_back_as_ids_are_names_that_ids_have(name in hostile()) {
        if let Ok(id) = MessageId::from_component(&name) {
            prop_assert_eq!(id.as_str(), &name);
            prop_assert!(!id.is_verbatim() || MessageId::new(&name) == id);
        }
    }

    #[test]
    fn paths_read_back_and_take_apart_and_together(path in path()) {
        prop_assert_eq!(&SafePath::new(path.as_str()).unwrap(), &path);
        prop_assert_eq!(path.components().collect::<Vec<_>>().join("/"), path.as_str());
        prop_assert_eq!(path.components().count(), path.depth());
        prop_assert_eq!(path.components().next_back(), Some(path.file_name()));
        if let Some(parent) = path.parent() {
            prop_assert!(path.starts_with(&parent));
            let last = path.strip_prefix(&parent).unwrap();
            prop_assert_eq!(last.as_str(), path.file_name());
            prop_assert_eq!(parent.join(&last).unwrap(), path);
        }
    }

    #[test]
    fn numbered_names_are_safe_and_distinct(name in accepted(), far in any::<u32>()) {
        let numbers: HashSet<u32> = (1..30).chain(98..103).chain([1000, far.max(1), u32::MAX]).collect();
        let names: HashSet<SafeName> = numbers.iter().map(|n| name.numbered(*n)).collect();
        prop_assert_eq!(names.len(), numbers.len());
        for name in &names {
            prop_assert!(safe_name(name.as_str()).is_ok(), "{}", name);
        }
        if name.as_str().len() <= 244 {
            let numbered = name.numbered(far);
            prop_assert_eq!(numbered.extension(), name.extension());
        }
    }

    #[test]
    fn nameless_attachments_of_one_message_are_different_files(
        mime in proptest::option::of(hostile()),
        kind in proptest::option::of(hostile()),
        first in any::<usize>(),
        second in any::<usize>(),
    ) {
        prop_assume!(first != second);
        let hint = AttachmentHint { name: None, mime: mime.as_deref(), kind: kind.as_deref() };
        prop_assert_ne!(hint.to_name(first), hint.to_name(second));
    }
}
