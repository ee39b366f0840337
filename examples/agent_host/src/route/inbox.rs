//! Giving a file to the guest.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use beneath::MessageId;
use beneath::session::{Attachment, Outcome};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::host::Host;
use crate::stream::upload;
use crate::target::Target;

pub(super) async fn deliver(
    State(host): State<Host>,
    target: Target,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let (message, name) = target.texts()?;
    upload(&host, body, move |body| {
        let attachment = Attachment::from_reader(body).with_name(&name);
        let delivery = target.session()?.inbox().deliver(&MessageId::new(message), [attachment]);
        match delivery.outcomes() {
            [Outcome::Saved(file)] => Ok((StatusCode::CREATED, Json(json!(file)))),
            [Outcome::AlreadySaved(file)] => Ok((StatusCode::OK, Json(json!(file)))),
            [Outcome::Refused(error)] => Err(error.clone().into()),
            other => Err(Failure::internal(format_args!("{} outcomes for one file", other.len()))),
        }
    })
    .await
}
