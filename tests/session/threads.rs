//! What a host gets from a session moves to the thread that needs it.

use std::collections::HashSet;
use std::thread;

use beneath::session::{
    Armed, Attachment, Claim, Collected, CollectedFile, Collection, DbFault, DbReport, Delivery, Disposition,
    Failed, FileIdentity, Filter, FilteredWalk, Hardened, Hardening, Inbox, Layout, LimitedFile, ListOptions,
    Listing, MessageLimits, Outbox, Outcome, Part, PartState, Place, Quota, SavedFile, SessionLock, Sibling,
    Survey, SweepClock, Swept, Tail, TailChunk, TailEvent, TailPosition, Ticket, Undeclared, Usage, Wake,
    WalSafety, Watch, Watcher, Workspace,
};
use beneath::{Entry, Error, MessageId, Removed, Session, Sessions, SessionsConfig};

use crate::support::with_each_resolver;

const fn moves<T: Send>() {}
const fn is_shared<T: Send + Sync>() {}
const fn outlives_its_session<T: Send + Sync + 'static>() {}

const _: () = {
    use beneath::tree::{Approval, Conflict, Merged, Tree};
    is_shared::<Merged>();
    is_shared::<Tree>();
    is_shared::<Conflict>();
    is_shared::<Approval>();
    is_shared::<beneath::CopiedTree>();
};

#[cfg(feature = "queue")]
const _: () = {
    use beneath::queue::{Answered, Drained, Polled, Recovered};
    is_shared::<Polled>();
    is_shared::<Recovered>();
    is_shared::<Drained>();
    is_shared::<Answered>();
};

#[cfg(feature = "mailbox")]
const _: () = {
    use beneath::mailbox::{Acks, MailSwept, Mailbox, Settled, Taken, Verdict};
    outlives_its_session::<Mailbox>();
    is_shared::<Taken>();
    is_shared::<Acks>();
    is_shared::<Settled>();
    is_shared::<MailSwept>();
    is_shared::<Verdict>();
};

#[cfg(feature = "mounts")]
const _: () = {
    use beneath::mounts::{Bwrap, Denials, Handover, Loaded, Mounts};
    outlives_its_session::<Mounts>();
    is_shared::<Handover>();
    is_shared::<Loaded>();
    is_shared::<Bwrap>();
    is_shared::<Denials>();
};

/// Checked when this is compiled.
const _: () = {
    outlives_its_session::<Sessions>();
    outlives_its_session::<Session>();
    outlives_its_session::<SessionsConfig>();
    outlives_its_session::<Inbox>();
    outlives_its_session::<Outbox>();
    outlives_its_session::<Workspace>();
    outlives_its_session::<Claim>();
    outlives_its_session::<Tail>();
    outlives_its_session::<Watch>();
    outlives_its_session::<Watcher>();
    outlives_its_session::<Delivery>();
    outlives_its_session::<SessionLock>();
    outlives_its_session::<LimitedFile>();
    moves::<Attachment<'static>>();
    is_shared::<Armed>();
    is_shared::<Wake>();
    is_shared::<Collected<Vec<u8>>>();
    is_shared::<Collected<LimitedFile>>();
    is_shared::<CollectedFile<Vec<u8>>>();
    is_shared::<Collection<Error>>();
    is_shared::<DbFault>();
    is_shared::<DbReport>();
    is_shared::<Disposition>();
    is_shared::<Failed<Error>>();
    is_shared::<FileIdentity>();
    is_shared::<Filter>();
    is_shared::<FilteredWalk>();
    is_shared::<Hardened>();
    is_shared::<Hardening>();
    is_shared::<Layout>();
    is_shared::<ListOptions>();
    is_shared::<Listing<Entry>>();
    is_shared::<Listing<MessageId>>();
    is_shared::<Listing<Undeclared>>();
    is_shared::<MessageLimits>();
    is_shared::<Outcome>();
    is_shared::<Part>();
    is_shared::<PartState>();
    is_shared::<Place>();
    is_shared::<Quota>();
    is_shared::<Removed>();
    is_shared::<SavedFile>();
    is_shared::<Sibling>();
    is_shared::<Survey>();
    is_shared::<SweepClock>();
    is_shared::<Swept>();
    is_shared::<TailChunk>();
    is_shared::<TailEvent>();
    is_shared::<TailPosition>();
    is_shared::<Ticket>();
    is_shared::<Usage>();
    is_shared::<WalSafety>();
};

#[test]
fn every_part_of_a_session_works_on_a_thread_that_outlives_the_session() {
    with_each_resolver(|stage| {
        stage.send("7", &[("a.txt", b"hello")]);
        let session = stage.session.clone();
        let (inbox, outbox, workspace) = (session.inbox(), session.outbox(), session.workspace());
        let mut tail = workspace.tail("log").unwrap();
        let claim = outbox.claim(&MessageId::new("7")).unwrap().unwrap();
        let lock = session.try_lock().unwrap();
        drop(session);

        let worked = thread::spawn(move || {
            let read = claim.read(["a.txt"]).unwrap();
            let delivery = inbox.deliver(&MessageId::new("8"), [Attachment::from_reader(&b"x"[..])]);
            workspace.write_exclusive("log", "one\n").unwrap();
            let report = outbox.collect(&lock, &mut HashSet::new(), |_| Ok::<_, Error>(Disposition::Done));
            (read, delivery, tail.next_chunk(64).unwrap(), report.unwrap())
        });
        let (read, delivery, chunk, report) = worked.join().unwrap();
        assert_eq!(read.found().next(), Some(("a.txt".as_ref(), &b"hello".to_vec())));
        assert!(delivery.is_complete());
        assert_eq!((chunk.bytes.as_slice(), report.done), (&b"one\n"[..], 1));
    });
}
