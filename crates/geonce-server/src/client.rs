//! Asks a gateway that runs on this machine: where it is, with which token, and what it answers.
//!
//! Every wait and every answer has a limit. The gateway leaves its address in the data folder as long as it runs; a file that
//! a killed one has left behind is only believed while somebody holds the store.

use crate::api::token;
use crate::config::{self, Overrides};
use crate::failure::Failure;
use bytes::Bytes;
use geonce::clock::Stopwatch;
use geonce_key::policy::Secret;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpStream;

/// The file with the address, in the data folder.
const FILE: &str = "api.address";
/// What the address begins with.
const SCHEME: &str = "http://";
/// The longest address that is read.
const ADDRESS_BYTES_MAX: u64 = 256;
/// How long connecting may take, on one machine.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How long an answer may take: longer than the gateway gives itself.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How long a gateway that is busy is asked again, and how long between.
const PATIENCE: Duration = Duration::from_mins(1);
const RETRY_SECONDS_MAX: u64 = 5;
/// The longest head and the longest body of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Characters that are shown of an answer that makes no sense.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// The address that a running gateway leaves for others. Taken away when this is dropped, unless somebody else's is there.
pub(crate) struct LeftAddress {
    file: PathBuf,
    text: String,
}

impl LeftAddress {
    /// Leaves the address in the data folder, whole or not at all.
    pub(crate) fn leave(data: &Path, listening: SocketAddr) -> Result<LeftAddress, Failure> {
        let file = data.join(FILE);
        let text = format!("{SCHEME}{}\n", reached_at(listening));
        let io = |error: &std::io::Error| Failure::io(&file.display().to_string(), error);
        let mut made = tempfile::NamedTempFile::new_in(data).map_err(|error| io(&error))?;
        made.write_all(text.as_bytes()).map_err(|error| io(&error))?;
        made.persist(&file).map_err(|refused| io(&refused.error))?;
        Ok(LeftAddress { file, text })
    }
}

impl Drop for LeftAddress {
    fn drop(&mut self) {
        if read(&self.file).is_some_and(|text| text == self.text) {
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

/// Where this machine reaches what listens there.
fn reached_at(listening: SocketAddr) -> SocketAddr {
    let address = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(address, listening.port())
}

/// Whether a gateway has left its address in the data folder, be it long ago.
pub(crate) fn has_address(data: &Path) -> bool {
    data.join(FILE).exists()
}

fn read(file: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(file).ok()?.take(ADDRESS_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Why there is no answer.
pub(crate) enum Trouble {
    /// Nobody is there, or what is there does not speak.
    Silent(String),
    /// The gateway says no: its status, code, and what it says.
    Refused { status: StatusCode, code: String, detail: String, hint: Option<String> },
}

impl Trouble {
    /// What a person is told.
    pub(crate) fn explained(self, doing: &str) -> Failure {
        match self {
            Trouble::Silent(why) => Failure::new("gateway_silent", format!("{doing}: {why}"))
                .hint("the log of the gateway may say more; what was done is in geonce events list --source @audit"),
            Trouble::Refused { status, code, detail, hint } => {
                let message = format!("{doing}: the gateway answers {}: {detail} [{code}]", status.as_u16());
                let failure = Failure::new("gateway_refuses", message);
                match hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
        }
    }
}

/// The API of a gateway on this machine.
pub(crate) struct Client {
    address: SocketAddr,
    token: HeaderValue,
}

impl Client {
    /// The gateway whose address is in the data folder.
    pub(crate) fn find(overrides: &Overrides, data: &Path) -> Result<Client, Failure> {
        let file = data.join(FILE);
        let wrong = || Failure::new("gateway_address", format!("{}: this is no address", file.display()));
        let text = read(&file).ok_or_else(wrong)?;
        let address = text.trim_end().strip_prefix(SCHEME).and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let secret = match config::api_token(overrides)? {
            Some(secret) => secret,
            None => token::read(data)?,
        };
        Ok(Client { address, token: bearer(&secret)? })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks, and again while the gateway is busy; `path` is below `/api/v1`.
    pub(crate) async fn ask(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Value, Trouble> {
        let asking = Stopwatch::start();
        loop {
            let (status, retry_after, text) = self.once(method, path, body).await?;
            if status.is_success() {
                return serde_json::from_slice(&text)
                    .map_err(|_| Trouble::Silent(format!("{} is not a gateway: {}", self.address, beginning(&text))));
            }
            let busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
            if !busy || asking.elapsed() > PATIENCE {
                return Err(refused(status, &text));
            }
            tokio::time::sleep(Duration::from_secs(retry_after.unwrap_or(1).min(RETRY_SECONDS_MAX))).await;
        }
    }

    async fn once(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Option<u64>, Bytes), Trouble> {
        let address = self.address;
        let silent = |what: &str| Trouble::Silent(format!("{address} {what}"));
        let connected = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(address)).await;
        let stream = connected
            .map_err(|_| silent("does not take connections"))?
            .map_err(|error| Trouble::Silent(format!("connecting to {address}: {error}")))?;
        tokio::time::timeout(ANSWER_WITHIN, self.speak(stream, method, path, body))
            .await
            .map_err(|_| silent(&format!("gave no answer in {} s", ANSWER_WITHIN.as_secs())))?
            .map_err(|error| Trouble::Silent(format!("asking {address}: {error}")))
    }

    async fn speak(
        &self,
        stream: TcpStream,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Option<u64>, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let builder = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream));
        let (mut sender, connection) = builder.await?;
        // Ends by itself when the sender is dropped or the gateway leaves.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header(HOST, self.address.to_string())
            .header(AUTHORIZATION, self.token.clone());
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
        let status = answer.status();
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|text| text.to_str().ok()?.parse().ok());
        let text = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes();
        Ok((status, retry_after, text))
    }
}

fn bearer(secret: &Secret) -> Result<HeaderValue, Failure> {
    let text = [b"Bearer ", secret.bytes()].concat();
    let mut value =
        HeaderValue::from_bytes(&text).map_err(|_| Failure::new("api_token", "the token of the API cannot be sent"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a problem says.
fn refused(status: StatusCode, text: &[u8]) -> Trouble {
    let problem: Value = serde_json::from_slice(text).unwrap_or_default();
    let said = |name: &str| problem[name].as_str().map(crate::show::escaped);
    Trouble::Refused {
        status,
        code: said("code").unwrap_or_else(|| "unknown".to_owned()),
        detail: said("detail").unwrap_or_else(|| beginning(text)),
        hint: said("hint"),
    }
}

fn beginning(text: &[u8]) -> String {
    crate::show::escaped(&String::from_utf8_lossy(text).chars().take(SHOWN_CHARACTERS_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{FILE, LeftAddress, has_address, reached_at};

    #[test]
    fn an_address_is_left_whole_and_taken_away_by_who_left_it() {
        let folder = tempfile::tempdir().unwrap();
        let left = LeftAddress::leave(folder.path(), "0.0.0.0:8787".parse().unwrap()).unwrap();
        assert!(has_address(folder.path()));
        let file = folder.path().join(FILE);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "http://127.0.0.1:8787\n");
        // Another gateway that shares the folder has come since.
        let later = LeftAddress::leave(folder.path(), "[::]:1".parse().unwrap()).unwrap();
        drop(left);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "http://[::1]:1\n");
        drop(later);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        assert_eq!(reached_at("192.0.2.1:5".parse().unwrap()), "192.0.2.1:5".parse().unwrap());
    }
}
