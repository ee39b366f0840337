//! What senders call their attachments, and how they encode them.

use beneath::session::{Attachment, Dotfiles, SessionsConfig};
use beneath::{ErrorKind, MessageId};

#[cfg(feature = "json")]
use crate::support::kinds;
use crate::support::{Stage, names};

fn id() -> MessageId {
    MessageId::new("42")
}

#[test]
fn a_dotfile_keeps_its_dot_if_asked() {
    for (dotfiles, expected) in [
        (Dotfiles::Show, ["_-2.gitignore", "_.gitignore", "a"]),
        (Dotfiles::Keep, [".gitignore", ".gitignore-2", "a"]),
    ] {
        let stage = Stage::with_config(SessionsConfig::default().with_dotfiles(dotfiles));
        let attachments = || {
            [("one", ".gitignore"), ("two", "../.gitignore"), ("three", "a")]
                .map(|(bytes, name)| Attachment::from_bytes(bytes).with_name(name))
        };
        let delivery = stage.session.inbox().deliver(&id(), attachments());
        assert!(delivery.is_complete());
        assert_eq!(names(&stage.guest("inbox/42")), expected);
        for file in delivery.files() {
            assert!(stage.session.inbox().resolve_guest_path(&file.guest_path).is_ok(), "{file:?}");
        }
        let again = stage.session.inbox().deliver(&id(), attachments());
        assert_eq!(names(&stage.guest("inbox/42")), expected, "a retry finds them");
        assert_eq!(again.into_outcomes().len(), 3);
        let hidden = stage.session.inbox().resolve_guest_path("/session/inbox/42/.hidden").unwrap_err();
        let kind = if dotfiles == Dotfiles::Keep { ErrorKind::NotFound } else { ErrorKind::InvalidPath };
        assert_eq!(hidden.kind(), kind);
    }
}

#[test]
fn a_name_of_the_hosts_own_form_is_given_to_no_attachment() {
    let stage = Stage::with_config(SessionsConfig::default().with_dotfiles(Dotfiles::Keep));
    let attachments =
        [".beneath-0123", "..", ".", "..."].map(|name| Attachment::from_bytes(name).with_name(name));
    assert!(stage.session.inbox().deliver(&id(), attachments).is_complete());
    let expected = ["_.beneath-0123", "attachment-1", "attachment-2", "attachment-3"];
    assert_eq!(names(&stage.guest("inbox/42")), expected);
}

#[cfg(feature = "json")]
#[test]
fn base64_of_other_forms_is_read_if_asked_for_the_attachment_or_for_all() {
    use beneath::session::{Base64, rewrite_message};

    let forms = ["data:text/plain;base64,aGk_aGk", "aGk_aGk", "aGk/\r\naGk=", "aGk/aGk"];
    let strict = Stage::with_config(SessionsConfig::default());
    for text in forms {
        let refused = strict.session.inbox().deliver(&id(), [Attachment::from_base64(text)]);
        assert_eq!(kinds(refused.refused()), [ErrorKind::InvalidData], "{text}");
        let attachment = Attachment::from_base64(text).with_name("a").with_base64(Base64::Lenient);
        let delivery = strict.session.inbox().deliver(&id(), [attachment.with_declared_size(5)]);
        assert!(delivery.is_complete(), "{text}: {delivery:?}");
    }
    assert_eq!(names(&strict.guest("inbox/42")), ["a"], "all of them are the same bytes");
    assert_eq!(std::fs::read(strict.guest("inbox/42/a")).unwrap(), b"hi?hi");

    let lenient = Stage::with_config(SessionsConfig::default().with_base64(Base64::Lenient));
    let json = r#"{"attachments":[{"name":"a","data":"data:;base64,aGk_aGk"},{"name":"b","data":"aGk*"}]}"#;
    let (_, delivery) = rewrite_message(&lenient.session.inbox(), &id(), json);
    assert_eq!((delivery.files().count(), kinds(delivery.refused())), (1, vec![ErrorKind::InvalidData]));
    let exact = Attachment::from_base64("aGk_aGk").with_base64(Base64::Strict);
    assert!(
        !lenient.session.inbox().deliver(&id(), [exact]).is_complete(),
        "the attachment's own word counts"
    );
}
