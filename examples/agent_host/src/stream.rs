//! Bodies of any size, in both directions, of which a few pieces are in memory.

use std::io::{self, Read};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::host::{Host, blocking};

/// How much of a file is read at a time.
const CHUNK: usize = 256 << 10;
/// How many pieces of an upload may wait for the disk.
const PIECES: usize = 4;
/// How long a client may send nothing.
const SILENCE: Duration = Duration::from_secs(30);

enum Piece {
    Bytes(Bytes),
    Failed(io::Error),
    End,
}

/// The body of a request, for code that blocks.
///
/// It ends well only if the client has said so. If the request is dropped in the middle, reading fails, and whoever
/// writes a file from this does not publish it.
pub(crate) struct Upload {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
}

impl Read for Upload {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.current = bytes,
                Some(Piece::End) => self.ended = true,
                Some(Piece::Failed(error)) => return Err(error),
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client has gone")),
            }
        }
        let length = buffer.len().min(self.current.len());
        let taken = self.current.split_to(length);
        buffer.get_mut(..length).unwrap_or_default().copy_from_slice(&taken);
        Ok(length)
    }
}

/// Runs `work`, which blocks, on the body of a request.
pub(crate) async fn upload<T: Send + 'static>(
    host: &Host,
    body: Body,
    work: impl FnOnce(Upload) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let _permit = host.upload_permit().await?;
    let (sender, pieces) = mpsc::channel(PIECES);
    let upload = Upload { pieces, current: Bytes::new(), ended: false };
    let (worked, ()) = tokio::join!(blocking(move || work(upload)), pump(body, sender));
    worked
}

/// Hands the body on until it ends, fails, or nobody wants more of it.
async fn pump(body: Body, sender: mpsc::Sender<Piece>) {
    let mut body = body.into_data_stream();
    loop {
        let piece = match timeout(SILENCE, body.next()).await {
            Ok(Some(Ok(bytes))) => Piece::Bytes(bytes),
            Ok(Some(Err(error))) => Piece::Failed(io::Error::other(error)),
            Ok(None) => Piece::End,
            Err(_) => Piece::Failed(io::ErrorKind::TimedOut.into()),
        };
        let is_last = !matches!(piece, Piece::Bytes(_));
        if sender.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

/// The next `length` bytes of a file as a response, which no browser takes for a page.
///
/// No thread waits for the client. If the guest has made the file shorter, the body fails, so that the client does not take
/// what it has for the whole.
pub(crate) fn download(file: impl Read + Send + 'static, length: u64) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_LENGTH, length.into()),
    ];
    let body = Body::from_stream(stream::try_unfold((file, length), |(file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let read = tokio::task::spawn_blocking(move || read_piece(file, left)).await;
        let (bytes, file) = read.map_err(io::Error::other)??;
        let left = left - bytes.len() as u64;
        Ok::<_, io::Error>(Some((bytes, (file, left))))
    }));
    (headers, body).into_response()
}

fn read_piece<R: Read>(mut file: R, left: u64) -> io::Result<(Bytes, R)> {
    let mut bytes = vec![0; usize::try_from(left).unwrap_or(CHUNK).min(CHUNK)];
    let length = file.read(&mut bytes)?;
    if length == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the guest has made the file shorter"));
    }
    bytes.truncate(length);
    Ok((bytes.into(), file))
}
