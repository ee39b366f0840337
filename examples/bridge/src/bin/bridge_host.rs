//! `bridge_host <sessions directory> <session> <data directory>` answers the requests of a session, until it gets SIGTERM or SIGINT.
//! `bridge_host token` prints a token for the guest's server.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use beneath::queue::QueueConfig;
use beneath::queue::policy::Token;
use beneath::{Root, SessionId, Sessions, SessionsConfig, ambient_authority};
use bridge::host::{Limits, serve};
use bridge::{Arguments, Issues};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: bridge_host <sessions directory> <session> <data directory> [--deadline MS] [--grace MS] \
    [--drain MS] [--handlers N] [--file-bytes N]; or bridge_host token";

fn main() -> Result<(), Box<dyn Error>> {
    let known = ["deadline", "grace", "drain", "handlers", "file-bytes"];
    let mut arguments = Arguments::read(std::env::args_os().skip(1), &known)?;
    let first = arguments.word().ok_or(USAGE)?;
    if first == "token" {
        return Ok(writeln!(std::io::stdout(), "{}", Token::generate()?.as_str())?);
    }
    let (session, data) = (arguments.word().ok_or(USAGE)?, arguments.word().ok_or(USAGE)?);
    let session = session.into_string().map_err(|_| "the session is not text")?;
    let mut limits = Limits::default();
    limits.deadline = arguments.time("deadline", limits.deadline);
    limits.grace = arguments.time("grace", limits.grace);
    limits.drain = arguments.time("drain", limits.drain);
    limits.handlers = arguments.number("handlers", limits.handlers as u64).try_into()?;
    let file_bytes = arguments.number("file-bytes", 0);

    let root = Root::open_ambient(first, ambient_authority())?;
    let (session, _) = Sessions::new(root, SessionsConfig::default()).create(&SessionId::new(session))?;
    let config = QueueConfig::default()
        .with_request_file_bytes(file_bytes)
        .with_response_file_bytes(file_bytes)
        .with_ledger(10_000);
    let queue = session.queue(config)?;
    queue.repair()?;
    let issues = Issues::open(Path::new(&data))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        writeln!(std::io::stdout(), "serving")?;
        Ok(serve(queue, issues, limits, stop).await?)
    });
    // A handler that is stuck must not keep the process; all that matters is answered.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}
