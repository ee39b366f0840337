//! Restores a session from an object store, with a bar and a report.
//!
//! `cargo run --example restore_session --features artifacts` needs no server: it fills a store in memory, hostile
//! objects included. With the feature `aws`, `--url s3://bucket/prefix` restores from a bucket, with credentials and
//! endpoint from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, …). `--into DIR` chooses where to.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use beneath::artifacts::{Artifacts, Event, OnLocal, Places, Prefix, Restored, Source};
use beneath::{Root, SafePath, ambient_authority};
use indicatif::{ProgressBar, ProgressStyle};
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
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
    let (source, prefix) = match url {
        Some(url) => bucket(&url)?,
        None => (memory().await?, Prefix::at(&SafePath::new("sessions/demo")?)),
    };

    // The guest sees `workspace`; the other two are the host's own.
    let open = |name: &str| {
        std::fs::create_dir_all(home.join(name))?;
        Ok::<_, Box<dyn Error>>(Root::open_ambient(home.join(name), ambient_authority())?)
    };
    let places = Places { workspace: open("workspace")?, staging: open("staging")?, state: open("state")? };

    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
        "{msg:12} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec}",
    )?);
    let shown = bar.clone();
    let artifacts = Artifacts::new(source, prefix, places)?.with_progress(move |event| match event {
        Event::Entered(step) => shown.set_message(format!("{step:?}").to_lowercase()),
        Event::Planned { bytes, .. } => shown.set_length(*bytes),
        Event::Moved { bytes, .. } => shown.inc(*bytes),
        Event::Retried { path, moved, error, .. } => {
            shown.dec(*moved);
            shown.println(format!("again    {path}: {error}"));
        }
        _ => {}
    });
    let report = artifacts.restore(OnLocal::ColdStart).await?;
    bar.finish_and_clear();

    for (_, error) in report.refused() {
        println!("refused  {error}");
    }
    for outcome in &report.outcomes {
        match outcome {
            Restored::Placed { path, bytes } => println!("placed   {path} ({bytes} bytes)"),
            Restored::Kept { path } => println!("kept     {path}"),
            Restored::Waiting { path } => println!("waiting  {path}"),
            Restored::Failed { error, .. } => println!("failed   {error}"),
            _ => {}
        }
    }
    println!("{:?}: {} placed, {} refused", report.ended, report.placed(), report.left.total);
    Ok(())
}

/// A store as a guest and its neighbours might have left it.
async fn memory() -> Result<Source, Box<dyn Error>> {
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
    Ok(Source::memory(Arc::new(store)))
}

#[cfg(feature = "aws")]
fn bucket(url: &str) -> Result<(Source, Prefix), Box<dyn Error>> {
    let rest = url.strip_prefix("s3://").ok_or("the URL must start with s3://")?;
    let (bucket, prefix) = rest.split_once('/').ok_or("the URL must name a bucket and a prefix")?;
    let builder = object_store::aws::AmazonS3Builder::from_env().with_bucket_name(bucket);
    Ok((Source::s3(builder)?, Prefix::at(&SafePath::new(prefix.trim_end_matches('/'))?)))
}

#[cfg(not(feature = "aws"))]
fn bucket(_url: &str) -> Result<(Source, Prefix), Box<dyn Error>> {
    Err("--url needs the feature aws".into())
}
