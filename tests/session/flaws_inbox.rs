//! What a guest can do to a host that delivers by path. Each test first shows the flaw in the naive port.

use std::fs;
use std::os::unix::fs::symlink;

use beneath::session::{Attachment, Outcome};
use beneath::{ErrorKind, MessageId, ResolverChoice, SessionId};

use crate::naive::{NaiveSession, lenient_base64};
use crate::support::{Stage, kinds, names, with_each_resolver};

/// A naive session over the guest's directory of a stage of its own.
fn naive() -> (Stage, NaiveSession) {
    let stage = Stage::new(ResolverChoice::Auto);
    let dir = stage.guest("");
    (stage, NaiveSession { dir })
}

fn photo() -> Attachment<'static> {
    Attachment::from_bytes("photo").with_name("photo.png")
}

#[test]
fn inbox_replaced_by_a_link_to_a_home_directory() {
    let (stage, control) = naive();
    stage.replace_by_link("inbox", stage.home.path());
    control.deliver("42", "photo.png", b"photo", || {}).unwrap();
    assert!(!stage.home.is_untouched(), "the control must be caught");

    with_each_resolver(|stage| {
        stage.replace_by_link("inbox", stage.home.path());
        let delivery = stage.session.inbox().deliver(&MessageId::new("42"), [photo()]);
        assert_eq!(kinds(delivery.refused()), [ErrorKind::Symlink]);
    });
}

#[test]
fn message_directory_as_a_link() {
    with_each_resolver(|stage| {
        symlink(stage.home.path(), stage.guest("inbox/42")).unwrap();
        let delivery = stage.session.inbox().deliver(&MessageId::new("42"), [photo()]);
        assert_eq!(kinds(delivery.refused()), [ErrorKind::Symlink]);
    });
}

#[test]
fn message_directory_as_a_dangling_link_loses_no_message() {
    let (stage, control) = naive();
    symlink("/nowhere/at/all", stage.guest("inbox/42")).unwrap();
    let lost = control.deliver("42", "photo.png", b"photo", || {});
    assert!(lost.is_err(), "the control throws, and the message with it");

    with_each_resolver(|stage| {
        symlink("/nowhere/at/all", stage.guest("inbox/42")).unwrap();
        let attachments = [photo(), Attachment::from_reader(&b"x"[..])];
        let delivery = stage.session.inbox().deliver(&MessageId::new("42"), attachments);
        assert_eq!(kinds(delivery.refused()), [ErrorKind::Symlink, ErrorKind::Symlink]);
        assert_eq!(delivery.outcomes().len(), 2, "one outcome each");
    });
}

#[test]
fn message_directory_as_a_plain_file() {
    with_each_resolver(|stage| {
        fs::write(stage.guest("inbox/42"), "in the way").unwrap();
        let delivery = stage.session.inbox().deliver(&MessageId::new("42"), [photo()]);
        assert_eq!(kinds(delivery.refused()), [ErrorKind::NotDirectory]);
    });
}

#[test]
fn inbox_missing_is_made_and_a_file_in_its_place_is_refused() {
    with_each_resolver(|stage| {
        fs::remove_dir(stage.guest("inbox")).unwrap();
        assert!(stage.session.inbox().deliver(&MessageId::new("1"), [photo()]).is_complete());
        fs::remove_dir_all(stage.guest("inbox")).unwrap();
        fs::write(stage.guest("inbox"), "").unwrap();
        let delivery = stage.session.inbox().deliver(&MessageId::new("1"), [photo()]);
        assert_eq!(kinds(delivery.refused()), [ErrorKind::NotDirectory]);
    });
}

#[test]
fn directory_swapped_for_a_link_between_check_and_write() {
    let (stage, control) = naive();
    let swap = |stage: &Stage| {
        fs::rename(stage.guest("inbox/42"), stage.guest("inbox/old")).unwrap();
        symlink(stage.home.path(), stage.guest("inbox/42")).unwrap();
    };
    control.deliver("42", "photo.png", b"photo", || swap(&stage)).unwrap();
    assert!(!stage.home.is_untouched(), "the control must be caught");

    with_each_resolver(|stage| {
        let stage: &Stage = stage;
        // The iterator runs between the lookup of the directory and the second write.
        let attachments = [photo(), Attachment::from_bytes("two")].into_iter().enumerate();
        let attachments = attachments.map(|(index, attachment)| {
            if index == 1 {
                swap(stage);
            }
            attachment
        });
        let delivery = stage.session.inbox().deliver(&MessageId::new("42"), attachments);
        assert!(delivery.is_complete());
        assert_eq!(names(&stage.guest("inbox/old")), ["attachment-1", "photo.png"]);
    });
}

#[test]
fn file_name_planted_as_a_link_to_a_host_file() {
    with_each_resolver(|stage| {
        fs::create_dir(stage.guest("inbox/42")).unwrap();
        symlink(stage.home.path().join("diary.txt"), stage.guest("inbox/42/photo.png")).unwrap();
        let delivery = stage.session.inbox().deliver(&MessageId::new("42"), [photo()]);
        assert_eq!(delivery.files().next().unwrap().name.as_str(), "photo-2.png");
    });
}

#[test]
fn message_ids_that_are_no_file_names_are_delivered_all_the_same() {
    let long = "x".repeat(300);
    let ids = [
        "spaces/AAA/messages/B.B",
        "..",
        ".",
        "",
        "../../escape",
        &long,
        "-1001:42",
        "a\0b",
        "..foo",
        "<x@y>",
    ];
    let (stage, control) = naive();
    let lost = ids.iter().filter(|id| !matches!(control.deliver(id, "p", b"x", || {}), Ok(Some(_)))).count();
    assert!(lost >= 6, "the control loses {lost} of {}", ids.len());
    drop(stage);

    with_each_resolver(|stage| {
        for id in ids {
            let delivery = stage.session.inbox().deliver(&MessageId::new(id), [photo()]);
            assert!(delivery.is_complete(), "{id:?}: {delivery:?}");
            let file = delivery.files().next().unwrap();
            let path = &file.path;
            assert!(!path.contains([':', '\0', '\\']) && path.split('/').count() == 3, "{path}");
            assert!(stage.session.inbox().resolve_guest_path(&file.guest_path).is_ok());
        }
        assert_eq!(names(&stage.guest("inbox")).len(), ids.len(), "no two share a directory");
    });
}

#[test]
fn two_nameless_photos_are_two_files() {
    let (_stage, control) = naive();
    let name = NaiveSession::derived_name(1_700_000_000_000, "jpg");
    assert!(control.deliver("42", &name, b"one", || {}).unwrap().is_some());
    assert!(control.deliver("42", &name, b"two", || {}).unwrap().is_none(), "the control drops the second");

    with_each_resolver(|stage| {
        let photos = ["one", "two"].map(|bytes| Attachment::from_bytes(bytes).with_kind("photo"));
        let delivery = stage.session.inbox().deliver(&MessageId::new("42"), photos);
        assert!(delivery.is_complete());
        assert_eq!(names(&stage.guest("inbox/42")), ["attachment-0.jpg", "attachment-1.jpg"]);
    });
}

#[test]
fn name_taken_beforehand_by_the_guest_suppresses_nothing() {
    let (stage, control) = naive();
    fs::create_dir(stage.guest("inbox/42")).unwrap();
    fs::write(stage.guest("inbox/42/photo.png"), "planted").unwrap();
    assert!(control.deliver("42", "photo.png", b"photo", || {}).unwrap().is_none(), "suppressed");

    with_each_resolver(|stage| {
        fs::create_dir(stage.guest("inbox/42")).unwrap();
        fs::write(stage.guest("inbox/42/photo.png"), "planted").unwrap();
        let delivery = stage.session.inbox().deliver(&MessageId::new("42"), [photo()]);
        let Outcome::Saved(file) = &delivery.outcomes()[0] else { panic!("{delivery:?}") };
        assert_eq!((file.name.as_str(), file.taken.as_ref().unwrap().as_str()), ("photo-2.png", "photo.png"));
        assert_eq!(fs::read(stage.guest("inbox/42/photo.png")).unwrap(), b"planted");
    });
}

#[test]
fn retry_after_a_partial_failure_keeps_the_attachment() {
    let (_stage, control) = naive();
    control.deliver("42", "photo.png", b"photo", || {}).unwrap();
    assert!(control.deliver("42", "photo.png", b"photo", || {}).unwrap().is_none(), "reported as lost");

    with_each_resolver(|stage| {
        for saved_before in [false, true] {
            let delivery = stage.session.inbox().deliver(&MessageId::new("42"), [photo()]);
            assert_eq!(matches!(delivery.outcomes()[0], Outcome::AlreadySaved(_)), saved_before);
        }
    });
}

#[test]
fn corrupted_base64_is_not_stored_as_success() {
    let corrupted = "aGVs*bG8=";
    assert_eq!(lenient_base64(corrupted), b"hello", "the control takes it");
    #[cfg(feature = "json")]
    with_each_resolver(|stage| {
        for text in [corrupted, "aGVsbG8", "aGVsbG8==", "aGVsbG9=", "aGVs\nbG8=", "-_-_", "===="] {
            let attachment = Attachment::from_base64(text);
            let delivery = stage.session.inbox().deliver(&MessageId::new("42"), [attachment]);
            assert_eq!(kinds(delivery.refused()), [ErrorKind::InvalidData], "{text:?}");
        }
        let delivery =
            stage.session.inbox().deliver(&MessageId::new("42"), [Attachment::from_base64("aGVsbG8=")]);
        assert!(delivery.is_complete());
    });
}

#[cfg(feature = "json")]
#[test]
fn refused_attachments_leave_no_payload_and_no_changed_numbers() {
    let message = r#"{"id":12345678901234567890123,"v":1.10,"attachments":[{"name":"a","data":"aGk="}]}"#;
    let value: serde_json::Value = serde_json::from_str(message).unwrap();
    assert!(!value.to_string().contains("12345678901234567890123,"), "the control rounds");

    with_each_resolver(|stage| {
        stage.replace_by_link("inbox", stage.home.path());
        let inbox = stage.session.inbox();
        let (rewritten, delivery) =
            beneath::session::rewrite_message(&inbox, &MessageId::new("a/b"), message);
        assert_eq!(kinds(delivery.refused()), [ErrorKind::Symlink]);
        assert!(
            rewritten.starts_with(
                r#"{"id":12345678901234567890123,"v":1.10,"attachments":[{"name":"a","refused":"#
            )
        );
        assert!(!rewritten.contains("aGk="));
    });
}

#[test]
fn session_ids_do_not_climb() {
    let (stage, _) = naive();
    let sessions = stage.sessions_path();
    NaiveSession::create(&sessions, "../home/x").unwrap();
    NaiveSession::create(&sessions, stage.home.path().join("y").to_str().unwrap()).unwrap();
    assert!(!stage.home.is_untouched(), "the control must be caught");

    with_each_resolver(|stage| {
        let absolute = stage.home.path().join("y").to_str().unwrap().to_owned();
        for raw in ["../home/x", "..", ".", "", &absolute] {
            stage.sessions.create(&SessionId::new(raw)).unwrap();
        }
        assert_eq!(stage.sessions.list().unwrap().len(), 6);
        assert_eq!(stage.all().len(), 6);
    });
}
