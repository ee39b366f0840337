use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use beneath::session::{Outcome, rewrite_message};
use beneath::{ErrorKind, MessageId};
use serde_json::Value;

use crate::support::{Stage, kinds, names, small, with_each_resolver};

fn id() -> MessageId {
    MessageId::new("42")
}

#[test]
fn changes_nothing_but_the_members_that_are_its_own() {
    with_each_resolver(|stage| {
        let cases = [
            (
                r#"{ "n" : 1.0e+5, "attachments" : [ { "data":"aGk=" , "name" : "a.txt", "x":-0 } ] , "z":"\u0041\/" }"#,
                r#"{ "n" : 1.0e+5, "attachments" : [ {  "name" : "a.txt", "x":-0,"localPath":"/session/inbox/42/a.txt" } ] , "z":"\u0041\/" }"#,
            ),
            (
                r#"{"attachments":[{"name":"b.txt","data":"aGk="}],"big":123456789012345678901234567890.10}"#,
                r#"{"attachments":[{"name":"b.txt","localPath":"/session/inbox/42/b.txt"}],"big":123456789012345678901234567890.10}"#,
            ),
            (
                "{\"attachments\":[{\n\t\"data\": \"aGk=\"\n}]}",
                "{\"attachments\":[{\"name\":\"attachment-0\",\"localPath\":\"/session/inbox/42/attachment-0\"\n}]}",
            ),
            (
                r#"{"attachments":[{"url":"https://x"},7,null,"s",[{"data":"kept"}],{"data":"aGk=","name":"c"}]}"#,
                r#"{"attachments":[{"url":"https://x"},7,null,"s",[{"data":"kept"}],{"name":"c","localPath":"/session/inbox/42/c"}]}"#,
            ),
        ];
        for (json, expected) in cases {
            let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), json);
            assert_eq!(rewritten, expected);
            assert!(delivery.is_complete());
            let _: Value = serde_json::from_str(&rewritten).unwrap();
            let _ = delivery.rollback();
        }
    });
}

#[test]
fn returns_what_is_not_a_message_with_attachments_as_it_is() {
    with_each_resolver(|stage| {
        for text in [
            "",
            " ",
            "plain text",
            "{",
            "{}x",
            "[]",
            "null",
            r#"{"attachments":{}}"#,
            r#"{"attachments":"x"}"#,
            r#"{"attachments":[]}"#,
            r#"{"attachments":[{"name":"x"}]}"#,
            r#"{"attachments":[{"data":"aGk="}]} trailing"#,
            r#"{"attachments":[{"data":"aGk="}],}"#,
            r#"{"other":[{"data":"aGk="}]}"#,
            r#"[{"attachments":[{"data":"aGk="}]}]"#,
            "\u{feff}\u{feff}{\"attachments\":[{\"data\":\"aGk=\"}]}",
        ] {
            let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), text);
            assert_eq!(rewritten, text);
            assert!(delivery.outcomes().is_empty());
        }
        assert_eq!(names(&stage.guest("inbox")), [""; 0]);
    });
}

#[test]
fn data_goes_in_every_outcome() {
    with_each_resolver(|stage| {
        let cases = [
            (r#""not base64!""#, ErrorKind::InvalidData),
            (r#""aGk""#, ErrorKind::InvalidData),
            (r#""aGk=aGk=""#, ErrorKind::InvalidData),
            (r#""aGl=""#, ErrorKind::InvalidData),
            (r#""a Gk=""#, ErrorKind::InvalidData),
            (r#""aGk=\n""#, ErrorKind::InvalidData),
            (r#""data:text/plain;base64,aGk=""#, ErrorKind::InvalidData),
            (r#""\ud800""#, ErrorKind::InvalidData),
            ("17", ErrorKind::InvalidData),
            ("1e999999", ErrorKind::InvalidData),
            ("null", ErrorKind::InvalidData),
            ("true", ErrorKind::InvalidData),
            (r#"{"data":"aGk="}"#, ErrorKind::InvalidData),
            (r#"["aGk="]"#, ErrorKind::InvalidData),
        ];
        for (data, kind) in cases {
            let json = format!(r#"{{"attachments":[{{"localPath":"/etc/passwd","data":{data},"k":1.50}}]}}"#);
            let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
            assert_eq!(kinds(delivery.refused()), [kind], "{data}");
            let value: Value = serde_json::from_str(&rewritten).unwrap();
            let attachment = value["attachments"][0].as_object().unwrap();
            assert_eq!(attachment.keys().collect::<Vec<_>>(), ["k", "refused"], "{rewritten}");
            assert_eq!(attachment["refused"]["kind"], "InvalidData");
            assert!(attachment["refused"]["reason"].as_str().unwrap().starts_with("deliver "));
            assert!(rewritten.contains("1.50"));
        }
    });
}

#[test]
fn repeated_and_escaped_keys_hide_nothing() {
    with_each_resolver(|stage| {
        let json = concat!(
            r#"{"attachments":[{"data":"Zmlyc3Q=","name":"x","d\u0061ta":"bGFzdA==","name":"y","dat":1}],"#,
            r#""att\u0061chments":[{"data":"dHdv"}]}"#
        );
        let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), json);
        assert_eq!(
            rewritten,
            concat!(
                r#"{"attachments":[{"name":"y","dat":1,"localPath":"/session/inbox/42/y"}],"#,
                r#""att\u0061chments":[{"name":"attachment-1","localPath":"/session/inbox/42/attachment-1"}]}"#
            )
        );
        assert_eq!(delivery.files().count(), 2);
        assert_eq!(fs::read(stage.guest("inbox/42/y")).unwrap(), b"last");
    });
}

#[test]
fn an_unknown_encoding_is_not_guessed() {
    with_each_resolver(|stage| {
        let json =
            r#"{"attachments":[{"encoding":"hex","data":"deadbeef"},{"encoding":"BASE64","data":"aGk="}]}"#;
        let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), json);
        assert_eq!(kinds(delivery.refused()), [ErrorKind::InvalidData]);
        assert!(!rewritten.contains("deadbeef"));
        assert!(matches!(delivery.outcomes()[1], Outcome::Saved(_)));
    });
}

#[test]
fn nests_and_grows_without_panic() {
    with_each_resolver(|stage| {
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let json = format!(r#"{{"deep":{deep},"attachments":[{{"deep":{deep},"data":"aGk="}}]}}"#);
        let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
        assert!(delivery.is_complete());
        assert_eq!(rewritten.matches(&deep).count(), 2);
        assert!(!rewritten.contains("aGk="));

        let bytes = vec![0xa5; 8 << 20];
        let json = format!(r#"{{"attachments":[{{"name":"big","data":"{}"}}]}}"#, STANDARD.encode(&bytes));
        let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
        assert!(delivery.is_complete());
        assert!(rewritten.len() < 200);
        assert_eq!(fs::read(stage.guest("inbox/42/big")).unwrap(), bytes);

        let many = vec![r#"{"data":"aGk="}"#; 10_000].join(",");
        let json = format!(r#"{{"attachments":[{many}]}}"#);
        let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &MessageId::new("many"), &json);
        assert_eq!(delivery.files().count(), 64);
        assert!(!rewritten.contains("\"data\""));
    });
}

#[test]
fn data_that_is_too_large_goes_before_it_is_decoded() {
    let stage = Stage::with_config(small());
    let json = format!(r#"{{"attachments":[{{"data":"{}"}}]}}"#, STANDARD.encode([0; 101]));
    let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
    assert_eq!(kinds(delivery.refused()), [ErrorKind::TooLarge]);
    assert!(rewritten.len() < 200, "{rewritten}");
    let exact = format!(r#"{{"attachments":[{{"data":"{}"}}]}}"#, STANDARD.encode([0; 100]));
    assert!(rewrite_message(&stage.session.inbox(), &id(), &exact).1.is_complete());
}

#[test]
fn a_hostile_reason_stays_inside_its_string() {
    with_each_resolver(|stage| {
        let json = r#"{"attachments":[{"name":"\"}],\"x\":\n\u202e","data":"!"}]}"#;
        let (rewritten, _) = rewrite_message(&stage.session.inbox(), &id(), json);
        let value: Value = serde_json::from_str(&rewritten).unwrap();
        assert_eq!(value.as_object().unwrap().len(), 1);
        let reason = value["attachments"][0]["refused"]["reason"].as_str().unwrap();
        assert!(!reason.contains(['\n', '\u{202e}']), "{reason:?}");
    });
}

#[test]
fn an_attachment_without_data_stays_whatever_its_encoding() {
    with_each_resolver(|stage| {
        for object in [
            r#"{"encoding":"hex","name":"x"}"#,
            r#"{"encoding":7}"#,
            r#"{"localPath":"/etc/passwd","refused":1,"encoding":"utf8"}"#,
        ] {
            let json = format!(r#"{{"attachments":[{object}]}}"#);
            let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
            assert_eq!(rewritten, json);
            assert_eq!(delivery.outcomes().len(), 0, "{object}");
        }
    });
}

#[test]
fn an_encoding_that_is_no_text_is_an_unknown_one() {
    with_each_resolver(|stage| {
        for encoding in ["7", "null", "[\"base64\"]", "{}"] {
            let json = format!(r#"{{"attachments":[{{"data":"aGk=","encoding":{encoding}}}]}}"#);
            let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), &json);
            assert_eq!(kinds(delivery.refused()), [ErrorKind::InvalidData], "{encoding}");
            assert!(!rewritten.contains("aGk="), "{rewritten}");
        }
    });
}

#[test]
fn data_does_not_survive_behind_a_byte_order_mark() {
    with_each_resolver(|stage| {
        let json = "\u{feff} {\"attachments\":[{\"name\":\"a.txt\",\"data\":\"aGk=\"}]}";
        let (rewritten, delivery) = rewrite_message(&stage.session.inbox(), &id(), json);
        let expected =
            "\u{feff} {\"attachments\":[{\"name\":\"a.txt\",\"localPath\":\"/session/inbox/42/a.txt\"}]}";
        assert_eq!(rewritten, expected);
        assert!(delivery.is_complete());
    });
}
