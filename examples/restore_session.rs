//! Restores a session's workspace from an object store, and brings the two together after both have changed.
//!
//! `cargo run --example restore_session --features artifacts` needs no server: it fills a store in memory, hostile
//! objects included. With the feature `aws`, `--url s3://bucket/prefix` restores from a bucket, with credentials and
//! endpoint from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, …), and changes nothing in it.
//! `--into DIR` chooses where to.

mod out;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use beneath::artifacts::{Artifacts, Deletions, Event, Prefix, Source, SyncOptions, SyncReport};
use beneath::{Root, SafePath, SessionId, Sessions, SessionsConfig, ambient_authority};
use indicatif::{ProgressBar, ProgressStyle};
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;
use out::{is_closed_pipe, out};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LEGEND: &str = "\
placed    objects that are files of the workspace now
uploaded  files that are objects of the store now
deleted   objects that are gone, because the guest has deleted their files
conflict  both sides have changed it; the second version is beside
held      deletions that wait for somebody to approve them
refused   the object or file is left where it is, and why
failed    as refused, but a later run may succeed";

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let (mut url, mut into) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--url" => url = arguments.next(),
            "--into" => into = arguments.next().map(PathBuf::from),
            other => return Err(format!("unknown argument {other:?}; see --url and --into").into()),
        }
    }
    let scratch = tempfile::tempdir()?;
    let home = into.unwrap_or_else(|| scratch.path().to_path_buf());
    let (source, prefix, store) = match &url {
        Some(url) => {
            let (source, prefix) = bucket(url)?;
            (source, prefix, None)
        }
        None => {
            let store = memory().await?;
            let prefix = Prefix::at(&SafePath::new("sessions/demo")?);
            (Source::memory(Arc::clone(&store)), prefix, Some(store))
        }
    };

    std::fs::create_dir_all(&home)?;
    let sessions = Sessions::new(Root::open_ambient(&home, ambient_authority())?, SessionsConfig::default());
    let (session, _) = sessions.create(&SessionId::new("demo"))?;

    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
        "{msg:10} [{bar:24}] {bytes}/{total_bytes} {bytes_per_sec}",
    )?);
    let shown = bar.clone();
    let artifacts = Artifacts::new(source, prefix, &session).with_progress(move |event| match event {
        Event::Entered(step) => shown.set_message(format!("{step:?}").to_lowercase()),
        Event::Planned { bytes, .. } => shown.set_length(*bytes),
        Event::Moved { bytes, .. } => shown.inc(*bytes),
        Event::Retried { path, moved, error, .. } => {
            shown.dec(*moved);
            shown.println(format!("again    {path}: {error}"));
        }
        _ => {}
    });
    out(LEGEND)?;
    out("\nRestore:")?;
    let report = artifacts.restore().await?;
    bar.finish_and_clear();
    print(&report)?;
    let Some(store) = store else { return Ok(()) };

    out("\nThe guest edits a file, makes another, deletes one and plants a link,")?;
    out("while another host edits the same file. Sync:")?;
    let workspace = session.workspace();
    workspace.replace("report.md", "# Findings, second edition")?;
    workspace.write_exclusive("data/Q3: more?.csv", "a,b\n3,4\n")?;
    workspace.remove_file("frames/007.bin")?;
    workspace.symlink("/etc/passwd", "data/passwd")?;
    store.put(&Path::from("sessions/demo/report.md"), "# Findings, with a remark".into()).await?;
    let options = SyncOptions::default();
    print(&artifacts.sync(&options).await?)?;

    out("\nThe guest loses its frames. Mirror:")?;
    for n in (0..200).filter(|n| *n != 7) {
        workspace.remove_file(&format!("frames/{n:03}.bin"))?;
    }
    let report = artifacts.mirror(&options).await?;
    print(&report)?;

    out("\nSomebody looks, and approves exactly these. Mirror:")?;
    let Some(held) = report.held.first() else { return Ok(()) };
    let options = options.with_deletions(Deletions::Approved(held.approval));
    print(&artifacts.mirror(&options).await?)
}

/// The refusals come last, where they are seen.
fn print(report: &SyncReport) -> Result<()> {
    let counts = [("placed", report.placed), ("uploaded", report.uploaded), ("deleted", report.deleted)];
    for (what, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        out(format!("  {what:<9} {count}"))?;
    }
    for conflict in &report.conflicts {
        let beside = conflict.beside.as_ref().map(|name| format!(", beside {name}"));
        out(format!("  conflict  {}{}", conflict.path, beside.unwrap_or_default()))?;
    }
    for held in &report.held {
        out(format!("  held      {} deletions, {}…", held.paths.len(), &held.approval.to_string()[..16]))?;
    }
    report.failed.iter().try_for_each(|(_, error)| out(format!("  failed    {error}")))?;
    report.refused().try_for_each(|(_, error)| out(format!("  refused   {error}")))?;
    out(format!("  complete  {}", if report.is_complete() { "yes" } else { "no" }))?;
    Ok(())
}

/// A store as a guest and its neighbours might have left it.
async fn memory() -> Result<Arc<InMemory>> {
    let store = InMemory::new();
    let objects = [
        ("report.md", "# Findings"),
        ("data/results.csv", "a,b\n1,2\n"),
        ("data/caf\u{e9} + 100%.txt", "odd but harmless"),
        ("skills/evil.md", "would be loaded as code"),
        ("photo\u{202e}gnp.exe", "shows as photoexe.png"),
        ("notes", "is a file"),
        ("notes/today.txt", "needs a directory"),
    ];
    for (path, content) in objects {
        store.put(&Path::parse(format!("sessions/demo/{path}"))?, content.into()).await?;
    }
    for n in 0..200 {
        store.put(&Path::parse(format!("sessions/demo/frames/{n:03}.bin"))?, vec![0; 10_000].into()).await?;
    }
    Ok(Arc::new(store))
}

#[cfg(feature = "aws")]
fn bucket(url: &str) -> Result<(Source, Prefix)> {
    let rest = url.strip_prefix("s3://").ok_or("the URL must start with s3://")?;
    let (bucket, prefix) = rest.split_once('/').ok_or("the URL must name a bucket and a prefix")?;
    let builder = object_store::aws::AmazonS3Builder::from_env().with_bucket_name(bucket);
    Ok((Source::s3(builder)?, Prefix::at(&SafePath::new(prefix.trim_end_matches('/'))?)))
}

#[cfg(not(feature = "aws"))]
fn bucket(_url: &str) -> Result<(Source, Prefix)> {
    Err("--url needs the feature aws".into())
}
