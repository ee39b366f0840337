//! A large object on its way to the store, part by part; nobody sees it before it is complete.
//!
//! | store | published | a part that failed |
//! |---|---|---|
//! | S3 (`Source::s3`) | by the store, in one step with the comparison | is put again |
//! | a directory (`Source::local`) | new: in one step; in place of another: after the comparison | fails the upload |
//! | any other | after the comparison | is put again by the store's client, as that is set up |

use bytes::Bytes;
use object_store::{MultipartUpload, PutPayload};
use tokio::sync::Mutex;

use super::local::Draft;
#[cfg(feature = "aws")]
use super::s3::S3;
use super::source::{Condition, store_error};
use crate::artifacts::disk::blocking;
use crate::error::{Error, ErrorKind, Result};

/// An upload in parts.
#[derive(Debug)]
pub(crate) struct Parts {
    key: String,
    id: Option<String>,
    way: Mutex<Way>,
}

#[derive(Debug)]
pub(super) enum Way {
    #[cfg(feature = "aws")]
    S3 {
        bucket: std::sync::Arc<S3>,
        at: object_store::path::Path,
        id: String,
        said: Vec<String>,
    },
    /// None only after a call that was given up.
    Local(Option<Draft>),
    Store(Box<dyn MultipartUpload>),
}

impl Parts {
    pub(super) fn new(key: &str, way: Way) -> Self {
        let id = match &way {
            #[cfg(feature = "aws")]
            Way::S3 { id, .. } => Some(id.clone()),
            Way::Local(_) | Way::Store(_) => None,
        };
        Self { key: key.to_owned(), id, way: Mutex::new(way) }
    }

    /// The id by which the upload can be aborted later, where the store has such ids.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Whether a call that failed may be made again.
    pub(crate) fn can_repeat(&self) -> bool {
        self.id.is_some()
    }

    /// Puts the next part.
    pub(crate) async fn put(&self, part: Bytes) -> Result<()> {
        match &mut *self.way.lock().await {
            #[cfg(feature = "aws")]
            Way::S3 { bucket, at, id, said } => {
                let put = bucket.put_part(at, id, said.len(), part).await?;
                said.push(put);
                Ok(())
            }
            Way::Local(draft) => on(draft, move |draft| draft.write(&part)).await,
            Way::Store(upload) => {
                let put = upload.put_part(PutPayload::from_bytes(part)).await;
                put.map_err(|error| store_error("put", &self.key, error))
            }
        }
    }

    /// Publishes the object, and tells its version. The store checks the condition only where it can: compare before.
    pub(crate) async fn complete(&self, condition: Condition<'_>) -> Result<Option<String>> {
        match &mut *self.way.lock().await {
            #[cfg(feature = "aws")]
            Way::S3 { bucket, at, id, said } => bucket.complete(at, id, said, condition).await,
            Way::Local(draft) => {
                let absent = condition == Condition::Absent;
                on(draft, move |draft| draft.publish(absent)).await
            }
            Way::Store(upload) => match upload.complete().await {
                Ok(result) => Ok(result.e_tag),
                Err(error) => Err(store_error("put", &self.key, error)),
            },
        }
    }

    /// Discards what was put.
    pub(crate) async fn abort(&self) -> Result<()> {
        match &mut *self.way.lock().await {
            #[cfg(feature = "aws")]
            Way::S3 { bucket, at, id, .. } => bucket.abort(at, id).await,
            // A file without a name is gone with its handle.
            Way::Local(_) => Ok(()),
            Way::Store(upload) => {
                upload.abort().await.map_err(|error| store_error("abort", &self.key, error))
            }
        }
    }
}

/// Works on a draft where that may block.
async fn on<T: Send + 'static>(
    slot: &mut Option<Draft>,
    work: impl FnOnce(&mut Draft) -> Result<T> + Send + 'static,
) -> Result<T> {
    let Some(mut draft) = slot.take() else {
        return Err(Error::new("put", ".", ErrorKind::Io).with_detail("given up half-way"));
    };
    let (draft, result) = blocking("put", move || {
        let result = work(&mut draft);
        Ok((draft, result))
    })
    .await?;
    *slot = Some(draft);
    result
}
