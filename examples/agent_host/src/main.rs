//! `agent_host <directory> [address]` serves the sessions in a directory until it gets SIGTERM or SIGINT.

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use agent_host::{Host, router};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Calls that block run on these, so there are never more of them at once.
const THREADS: usize = 64;

/// How long requests may go on after the signal.
const GRACE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let directory = arguments.next().ok_or("usage: agent_host <directory> [address]")?;
    let address = arguments.next().map_or_else(|| Ok("127.0.0.1:7878".into()), |text| text.into_string());
    let address = address.map_err(|_| "the address is not text")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(THREADS).build()?;
    let result = runtime.block_on(async {
        let host = Host::open(&directory)?;
        let listener = TcpListener::bind(&address).await?;
        writeln!(std::io::stdout(), "listening on http://{}", listener.local_addr()?)?;
        serve(listener, host).await
    });
    // A call that is stuck, on a dead disk say, must not keep the process.
    runtime.shutdown_background();
    result
}

async fn serve(listener: TcpListener, host: Host) -> Result<(), Box<dyn Error>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopping = host.clone();
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.stop();
    };
    let late = host.clone();
    tokio::select! {
        served = axum::serve(listener, router(host)).with_graceful_shutdown(stop) => Ok(served?),
        () = async move { late.stopped().await; tokio::time::sleep(GRACE).await } => Ok(()),
    }
}
