//! `bridge_guest <queue directory> [address]` serves HTTP in a guest, until it gets SIGTERM or SIGINT. The token is in the
//! environment, as `BRIDGE_TOKEN`.

use std::error::Error;
use std::io::Write as _;
use std::num::NonZeroU16;
use std::time::Duration;

use beneath::queue::policy::Token;
use beneath::queue::{Client, ClientConfig};
use beneath::{Root, ambient_authority};
use bridge::Arguments;
use bridge::guest::{Limits, router};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str =
    "usage: bridge_guest <queue directory> [address] [--depth N] [--wait MS] [--file-bytes N]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::read(std::env::args_os().skip(1), &["depth", "wait", "file-bytes"])?;
    let directory = arguments.word().ok_or(USAGE)?;
    let address = arguments.word().map_or_else(|| Ok("127.0.0.1:0".to_owned()), |word| word.into_string());
    let address = address.map_err(|_| "the address is not text")?;
    let token =
        std::env::var("BRIDGE_TOKEN").map_err(|_| "BRIDGE_TOKEN is not set; bridge_host token makes one")?;
    let token = Token::parse(&token)?;
    let depth = arguments.number("depth", 64).try_into()?;
    let mut limits = Limits::default();
    limits.wait = arguments.time("wait", limits.wait);
    limits.file_bytes = arguments.number("file-bytes", 0).try_into()?;
    let root = Root::open_ambient(directory, ambient_authority())?;
    let config = ClientConfig::default().with_depth(depth).with_file_bytes(limits.file_bytes as u64);
    let client = Client::new(root, config);
    // A request keeps a thread for as long as it waits.
    let threads = depth.saturating_add(8);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(threads).build()?;
    let result = runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let listener = TcpListener::bind(&address).await?;
        let port = NonZeroU16::new(listener.local_addr()?.port()).ok_or("there is no port")?;
        client.announce(port)?;
        writeln!(std::io::stdout(), "listening on http://{}", listener.local_addr()?)?;
        tokio::select! {
            served = axum::serve(listener, router(client, token, limits)) => Ok(served?),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    });
    // Tickets are dropped within a slice of their waits, and take their requests back.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}
