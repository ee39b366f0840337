//! What time it is at the store.
//!
//! Problem: an ETag says only what the bytes are. Whether the same bytes were put again, with another mode, is seen by when they were
//! put, and the answer to a put does not say that.
//!
//! Defence: every answer has the time of the server. What was put before a put was answered, by the same clock, is that put. Only
//! the last answer counts: one from a clock that is ahead must not speak for all that come after it.
//!
//! What remains: another host that puts the same bytes within the same second is not seen.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::DateTime;
use http::header::DATE;
use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpService};

/// The time that the last answer had, in seconds since the epoch; shared by all who hold it.
#[derive(Clone, Debug)]
pub(super) struct Clock(Arc<AtomicI64>);

impl Default for Clock {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MIN)))
    }
}

impl Clock {
    /// The time; none before the first answer that has one.
    pub(super) fn now(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|time| *time != i64::MIN)
    }

    /// The same client, whose answers set the clock.
    pub(super) fn watching(&self, client: HttpClient) -> HttpClient {
        HttpClient::new(Watched { client, clock: self.clone() })
    }
}

#[derive(Debug)]
struct Watched {
    client: HttpClient,
    clock: Clock,
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Watched {
    fn call<'life0, 'async_trait>(&'life0 self, request: HttpRequest) -> Answer<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let response = self.client.execute(request).await?;
            let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
            if let Some(time) = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()) {
                self.clock.0.store(time.timestamp(), Ordering::Relaxed);
            }
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use object_store::client::HttpRequestBody;
    use std::sync::Mutex;

    /// Answers with these dates, the last first.
    #[derive(Debug)]
    struct Dates(Mutex<Vec<&'static str>>);

    impl HttpService for Dates {
        fn call<'life0, 'async_trait>(&'life0 self, _: HttpRequest) -> Answer<'async_trait>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            let date = self.0.lock().unwrap().pop().unwrap();
            let mut response = HttpResponse::new(Vec::new().into());
            response.headers_mut().insert(DATE, HeaderValue::from_static(date));
            Box::pin(std::future::ready(Ok(response)))
        }
    }

    #[tokio::test]
    async fn one_answer_from_a_clock_that_is_ahead_does_not_last() {
        let dates = ["soon", "Thu, 01 Jan 1970 00:00:07 GMT", "Fri, 01 Jan 2100 00:00:00 GMT"];
        let clock = Clock::default();
        assert_eq!(clock.now(), None);
        let client = clock.watching(HttpClient::new(Dates(Mutex::new(dates.to_vec()))));
        for now in [4_102_444_800, 7, 7] {
            client.execute(HttpRequest::new(HttpRequestBody::empty())).await.unwrap();
            assert_eq!(clock.now(), Some(now));
        }
    }
}
