//! The HTTP client of the clouds, which goes where it was sent and nowhere else.
//!
//! Problem: whoever answers in place of a store can answer with a redirect. A client that follows it sends the request, with its
//! body, to a host that the store names: a service within the host's own network, for example.
//!
//! Defence: a client with the settings of the store's own, that follows no redirect. A redirect is an error, which names the
//! region if the store does.
//!
//! What remains: root certificates and a DNS resolver that are set in code cannot be read from the settings. With these the store's
//! own client is used, which follows redirects.

use std::time::Duration;

use object_store::client::{ClientOptions, HttpClient, HttpConnector, ReqwestConnector};
use object_store::{ClientConfigKey, Error, Result};

use super::bounded::bounded;

/// Makes clients that follow no redirect, and whose answers have [bounds](super::bounded).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Strict;

impl HttpConnector for Strict {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = match is_readable(options) {
            true => HttpClient::new(client(options)?),
            false => ReqwestConnector::default().connect(options)?,
        };
        Ok(bounded(client))
    }
}

/// Whether all that is set can be read.
fn is_readable(options: &ClientOptions) -> bool {
    let text = format!("{options:?}");
    text.contains("root_certificates: []") && text.contains("dns_resolver: None")
}

fn client(options: &ClientOptions) -> Result<reqwest::Client> {
    use ClientConfigKey as Key;
    let value = |key| options.get_config_value(&key);
    let is_set = |key| value(key).is_some_and(|value| value == "true");
    let time = |key| value(key).map(|value| duration(&value)).transpose();
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(
            value(Key::UserAgent).unwrap_or_else(|| concat!("beneath/", env!("CARGO_PKG_VERSION")).into()),
        )
        .https_only(!is_set(Key::AllowHttp))
        // A body that is packed on its way has another length than the object.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate();
    if let Some(headers) = options.get_default_headers() {
        builder = builder.default_headers(headers.clone());
    }
    if let Some(url) = value(Key::ProxyUrl) {
        let mut proxy = reqwest::Proxy::all(url).map_err(failed)?;
        if let Some(certificate) = value(Key::ProxyCaCertificate) {
            let certificate = reqwest::Certificate::from_pem(certificate.as_bytes()).map_err(failed)?;
            builder = builder.tls_certs_merge([certificate]);
        }
        if let Some(excluded) = value(Key::ProxyExcludes) {
            proxy = proxy.no_proxy(reqwest::NoProxy::from_string(&excluded));
        }
        builder = builder.proxy(proxy);
    }
    if is_set(Key::NoSystemCertificates) {
        builder = builder.tls_certs_only([]);
    }
    if is_set(Key::AllowInvalidCertificates) {
        builder = builder.danger_accept_invalid_certs(true);
    }
    if let Some(time) = time(Key::Timeout)? {
        builder = builder.timeout(time);
    }
    if let Some(time) = time(Key::ConnectTimeout)? {
        builder = builder.connect_timeout(time);
    }
    if let Some(time) = time(Key::ReadTimeout)? {
        builder = builder.read_timeout(time);
    }
    if let Some(time) = time(Key::PoolIdleTimeout)? {
        builder = builder.pool_idle_timeout(time);
    }
    if let Some(most) = value(Key::PoolMaxIdlePerHost) {
        builder = builder.pool_max_idle_per_host(most.parse().map_err(failed)?);
    }
    if let Some(time) = time(Key::Http2KeepAliveInterval)? {
        builder = builder.http2_keep_alive_interval(time);
    }
    if let Some(time) = time(Key::Http2KeepAliveTimeout)? {
        builder = builder.http2_keep_alive_timeout(time);
    }
    if is_set(Key::Http2KeepAliveWhileIdle) {
        builder = builder.http2_keep_alive_while_idle(true);
    }
    if let Some(size) = value(Key::Http2MaxFrameSize) {
        builder = builder.http2_max_frame_size(Some(size.parse().map_err(failed)?));
    }
    if is_set(Key::Http1Only) {
        builder = builder.http1_only();
    }
    if is_set(Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    builder.build().map_err(failed)
}

fn duration(text: &str) -> Result<Duration> {
    humantime::parse_duration(text).map_err(failed)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: "HTTP client", source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_the_client_is_carried_over() {
        use ClientConfigKey as Key;
        let settings = [
            (Key::AllowHttp, "true"),
            (Key::ConnectTimeout, "7s"),
            (Key::ReadTimeout, "1m 30s"),
            (Key::Timeout, "30 days"),
            (Key::PoolIdleTimeout, "5s"),
            (Key::PoolMaxIdlePerHost, "3"),
            (Key::Http1Only, "true"),
            (Key::Http2KeepAliveInterval, "9s"),
            (Key::Http2KeepAliveTimeout, "9s"),
            (Key::Http2MaxFrameSize, "32768"),
            (Key::ProxyUrl, "http://127.0.0.1:1"),
            (Key::ProxyExcludes, "localhost"),
            (Key::NoSystemCertificates, "true"),
            (Key::UserAgent, "me/1"),
        ];
        let options = settings
            .into_iter()
            .fold(ClientOptions::new(), |options, (key, value)| options.with_config(key, value));
        assert!(is_readable(&options) && is_readable(&ClientOptions::new()));
        client(&options).unwrap();
        client(&ClientOptions::new()).unwrap();
    }
}
