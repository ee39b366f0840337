//! What a guest in a container can do.

use std::process::{Command, Output};

use beneath::mailbox::{Delivered, Inbound};
use beneath::session::{Attachment, MountAccess};
use beneath::{MessageId, ambient_authority};
use beneath_kit::skip;

use crate::support::{Stage, ids, texts};

/// Runs a script in a guest that sees the session as `to_mount` says; with `writable`, the share as a careless host mounts it.
fn in_guest(stage: &Stage, writable: bool, script: &str) -> Option<Output> {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        skip("it needs sqlite3");
        return None;
    }
    let mut command = beneath_kit::bwrap::command();
    for mount in stage.session.to_mount(ambient_authority()).unwrap() {
        let read_only = mount.access == MountAccess::ReadOnly && !writable;
        command
            .arg(if read_only { "--ro-bind" } else { "--bind" })
            .arg(mount.source)
            .arg(mount.target.as_str());
    }
    let output = match command.args(["/bin/sh", "-c", script]).output() {
        Ok(output) => output,
        Err(error) => {
            skip(&format!("there is no bubblewrap: {error}"));
            return None;
        }
    };
    let complained = String::from_utf8_lossy(&output.stderr);
    if complained.starts_with("bwrap:") {
        skip(&format!("bubblewrap may not do it here: {complained}"));
        return None;
    }
    Some(output)
}

#[test]
fn a_guest_reads_its_messages_and_writes_its_own_and_cannot_write_the_hosts() {
    let stage = Stage::new();
    let file = Attachment::from_bytes("bytes").with_name("a.txt");
    let message = Inbound::new(&MessageId::new("m"), "chat", "hello").with_attachments([file]);
    assert!(stage.mailbox.put(message).unwrap().is_complete());

    let script = "sqlite3 -readonly /share/inbound.db 'SELECT content FROM messages_in' && \
        cat \"$(sqlite3 -readonly /share/inbound.db 'SELECT path FROM files_in')\" && \
        sqlite3 /session/outbound.db \"INSERT INTO messages_out (id, seq, kind, content) VALUES ('reply', 3, 'chat', 'hi')\"";
    let Some(output) = in_guest(&stage, false, script) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\nbytes", "{output:?}");
    let taken = stage.take();
    assert_eq!(ids(&taken), ["reply"]);
    stage.mark(&taken.messages[0], Delivered::Done);
    let script = "sqlite3 -readonly /share/inbound.db 'SELECT id, outcome FROM delivered'";
    let output = in_guest(&stage, false, script).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "reply|delivered\n");

    let attack = "sqlite3 /share/inbound.db \"UPDATE messages_in SET content = 'forged'\"; \
        echo x >/share/inbound.db-journal; ln -sf /session/outbound.db /share/inbound.db; mkfifo /share/inbound.db-wal; \
        rm -f /share/inbound.db; true";
    let output = in_guest(&stage, false, attack).unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Read-only file system"), "{output:?}");
    assert_eq!(texts(&stage.inbound(), "SELECT content FROM messages_in"), ["hello"]);
    assert_eq!(beneath_kit::snapshot::names(&stage.share(".")), ["inbound.db"]);

    // The control: on a writable mount the same guest forges it.
    let forge = "sqlite3 /share/inbound.db \"UPDATE messages_in SET content = 'forged'\"";
    in_guest(&stage, true, forge).unwrap();
    assert_eq!(texts(&stage.inbound(), "SELECT content FROM messages_in"), ["forged"]);
}
