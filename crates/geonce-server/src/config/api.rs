//! Settings of the API: who may ask, and where.

use super::Reading;
use super::file::{self, SecretSource};
use super::verify::Shown;
use crate::api::token;
use crate::failure::Failure;
use geonce_key::policy::Secret;
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::SocketAddr;

/// The API as it is configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiSettings {
    /// What those who ask must know, and how a saved configuration refers to it. Without it one is made.
    pub(crate) token: Option<(Secret, Shown)>,
    /// An address of its own.
    pub(crate) listen: Option<SocketAddr>,
    /// Whether others than this machine may ask.
    pub(crate) remote: bool,
}

/// Who may look into events, and have something done about them: `/api/v1`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Api {
    /// What requests must bear in `Authorization: Bearer` [default: one is made in the data folder, `api.token`].
    pub(super) token: Option<SecretSource>,
    /// An address and port of its own; the API is then nowhere else [default: where senders are served].
    pub(super) listen: Option<String>,
    /// Whether others than this machine may ask [default: false].
    pub(super) remote: Option<bool>,
}

impl Reading<'_> {
    /// The settings of `[api]`.
    pub(super) fn api(&self, api: file::Api, senders: SocketAddr) -> Result<ApiSettings, Failure> {
        let token = api.token.map(|source| self.secret(source, "api.token")).transpose()?;
        if let Some((secret, _)) = &token {
            let text = String::from_utf8_lossy(secret.bytes());
            token::check(&text).map_err(|wrong| self.refuse("api.token", &wrong))?;
        }
        let listen = api.listen.map(|text| {
            text.parse::<SocketAddr>()
                .map_err(|_| self.refuse("api.listen", "this is no address and port").hint("such as 127.0.0.1:8788"))
        });
        let listen = listen.transpose()?;
        let remote = api.remote.unwrap_or(false);
        if listen.is_some_and(|listen| listen == senders && listen.port() != 0) {
            return Err(self.refuse("api.listen", "senders are served at this address").hint("take the setting away"));
        }
        if listen.is_some_and(|listen| !listen.ip().is_loopback()) && !remote {
            return Err(self
                .refuse("api.listen", "this is an address for others, and only this machine may ask")
                .hint("say remote = true, or listen on 127.0.0.1"));
        }
        Ok(ApiSettings { token, listen, remote })
    }
}
