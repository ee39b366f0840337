use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use beneath::session::Attachment;
use beneath::{MessageId, ResolverChoice};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::support::Stage;

/// Writes each event as one line.
struct Recorder(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl tracing::Subscriber for Recorder {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().target().to_owned());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// In a process of its own: what other threads have made of the same events is remembered for the whole process.
#[test]
fn every_refusal_is_an_event_with_hostile_text_escaped() {
    const CHILD: &str = "BENEATH_EVENTS_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "events::every_refusal_is_an_event_with_hostile_text_escaped", "--nocapture"]);
        let output = child.env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let stage = Stage::new(ResolverChoice::Auto);
    let lines = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::with_default(Recorder(Arc::clone(&lines)), || {
        stage.send("42", &[]);
        let claim = stage.session.outbox().claim(&MessageId::new("42")).unwrap().unwrap();
        assert_eq!(claim.read(["a\n\u{202e}b"]).unwrap().refused().count(), 1);
        let attachment = Attachment::from_bytes("x").with_declared_size(2).with_name("n");
        let delivery = stage.session.inbox().deliver(&MessageId::new("1"), [attachment]);
        assert!(!delivery.is_complete());
        stage.replace_by_link("inbox", stage.home.path());
        let _ = stage.session.repair().unwrap();
        std::fs::write(stage.host("claimed/stray"), "").unwrap();
        std::fs::create_dir(stage.host("claimed/.no id")).unwrap();
        assert_eq!(stage.session.outbox().pending().unwrap().entries.len(), 1, "only the message");
    });
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert!(lines[0].contains("operation=\"read\"") && lines[0].contains("kind=NotFound"), "{}", lines[0]);
    assert!(lines.iter().all(|line| line.starts_with("beneath") && !line.contains(['\n', '\u{202e}'])));
    assert!(lines[1].contains("kind=InvalidData"));
    assert!(lines[2].contains("found=Symlink"));
    for kind in ["kind=NotDirectory", "kind=InvalidName"] {
        assert!(
            lines.iter().any(|line| line.contains("operation=\"pending\"") && line.contains(kind)),
            "{kind}"
        );
    }
    assert!(!stage.host("claimed/stray").exists());
    assert!(stage.host("claimed/.no id").exists());
}
