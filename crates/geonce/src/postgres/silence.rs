//! Whether a server that is silent is still at work, asked over a connection of its own.
//!
//! A statement may rightly take seconds. A network that swallowed the request, or its answer, looks the same from here, and
//! waiting for the longest time allowed would hold up everybody behind it. The server knows which of the two it is.

use tokio::sync::Mutex;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use std::time::Duration;

/// How long an answer may take before the server is asked about it.
const SUSPICIOUS: Duration = Duration::from_secs(2);
/// How often it is asked,
const ASK_EVERY: Duration = Duration::from_millis(400);
/// and how long that may take.
const ASK_MAX: Duration = Duration::from_secs(1);
/// An answer may just be on its way, so the server must have been idle so often in a row.
const IDLE_MIN: u32 = 2;

pub(super) struct Asker {
    config: Config,
    tls: MakeRustlsConnect,
    /// One for all who wait: while there is trouble they are many.
    client: Mutex<Option<Client>>,
}

impl Asker {
    pub(super) fn new(config: Config, tls: MakeRustlsConnect) -> Asker {
        Asker { config, tls, client: Mutex::default() }
    }

    /// Returns when the server has nothing to do for the connection with this process, though it was given something.
    pub(super) async fn lost(&self, process: i32) {
        tokio::time::sleep(SUSPICIOUS).await;
        // Hardly ever needed, and large: every statement would carry it along.
        Box::pin(self.until_idle(process)).await;
    }

    async fn until_idle(&self, process: i32) {
        let mut idle = 0;
        while idle < IDLE_MIN {
            tokio::time::sleep(ASK_EVERY).await;
            idle = if self.is_idle(process).await { idle + 1 } else { 0 };
        }
    }

    /// Whether the server says so; who cannot be asked says nothing.
    async fn is_idle(&self, process: i32) -> bool {
        let mut client = self.client.lock().await;
        let asked = tokio::time::timeout(ASK_MAX, async {
            let connected = if let Some(connected) = client.take().filter(|client| !client.is_closed()) {
                connected
            } else {
                let (connected, connection) = self.config.connect(self.tls.clone()).await?;
                tokio::spawn(connection);
                connected
            };
            let text = "SELECT state FROM pg_catalog.pg_stat_activity WHERE pid = $1";
            let rows = connected.query_typed(text, &[(&process, Type::INT4)]).await?;
            let state = rows.first().map(|row| row.try_get::<_, Option<String>>(0)).transpose()?;
            Ok::<_, tokio_postgres::Error>((connected, state))
        });
        let Ok(Ok((connected, state))) = asked.await else { return false };
        *client = Some(connected);
        match state {
            // Its process is gone.
            None => true,
            Some(state) => state.is_some_and(|state| state.starts_with("idle")),
        }
    }
}
