//! `PostgreSQL` with PostGIS, and pgbouncer before it.

use crate::child::{Folder, Server, command, give, run, try_run};
use crate::{free_port, until};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A database with PostGIS in it, copied for each test: that takes a tenth of a second, creating the extension a whole one.
const TEMPLATE: &str = "geonce_template";

/// A server of its own.
pub struct Postgres {
    port: u16,
    /// Dropped before its folder.
    server: Server,
    folder: Folder,
    settings: Vec<String>,
    databases: AtomicU32,
}

/// The folder with the newest server's programs.
fn programs() -> PathBuf {
    let found = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = found.filter(|path| path.join("bin/initdb").exists()).max_by_key(version);
    newest
        .unwrap_or_else(|| panic!("PostgreSQL is not installed: apt-get install postgresql postgresql-15-postgis-3"))
        .join("bin")
}

impl Postgres {
    /// The server that all tests of this process share.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Postgres::start(&[]))
    }

    /// Starts a server with settings such as `fsync=off`.
    pub fn start(settings: &[&str]) -> Postgres {
        let (folder, programs) = (Folder::new("postgres"), programs());
        let data = folder.join("data");
        run(command(programs.join("initdb"))
            .args(["-U", "postgres", "-A", "trust", "--no-locale", "-E", "UTF8", "--no-sync", "-D"])
            .arg(&data));
        let mut settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        settings.extend([
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", folder.path().display()),
            "max_connections=200".to_owned(),
        ]);
        // Chosen last: others could take it while the files are made.
        let port = free_port();
        let server = launch(&folder, port, &settings);
        let started = Postgres { folder, port, server, settings, databases: AtomicU32::new(0) };
        started.await_answer();
        started.sql("postgres", &format!("CREATE DATABASE {TEMPLATE}"));
        started.sql(TEMPLATE, "CREATE EXTENSION postgis");
        started
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Speaks TLS too from now on, with a certificate and its key; the file with the certificate.
    pub fn encrypt(&self, certificate: &str, key: &str) -> PathBuf {
        let data = self.folder.join("data");
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let file = data.join(name);
            std::fs::write(&file, text).expect("a file for the server");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("its permissions");
            give(&file);
        }
        self.sql("postgres", "ALTER SYSTEM SET ssl = on");
        self.sql("postgres", "SELECT pg_reload_conf()");
        until("TLS", || match self.sql("postgres", "SHOW ssl") {
            on if on == "on" => Ok(()),
            other => Err(other),
        });
        data.join("server.crt")
    }

    /// A new database with PostGIS; its URL.
    pub fn database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"));
        self.url(&name)
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// What psql says to a statement, without decoration.
    pub fn sql(&self, database: &str, statement: &str) -> String {
        run(&mut self.psql(database, statement)).trim_end().to_owned()
    }

    fn psql(&self, database: &str, statement: &str) -> Command {
        let mut command = Command::new(programs().join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
        command.args(["-p", &self.port.to_string(), "-d", database, "-c", statement]);
        command
    }

    fn await_answer(&self) {
        until("PostgreSQL", || {
            try_run(&mut self.psql("postgres", "SELECT 1")).map(drop).map_err(|error| {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                format!("{error}\n{log}")
            })
        });
    }

    /// Ends it at once, without a checkpoint, as a crash would; and starts it again.
    pub fn crash_and_restart(&mut self) {
        self.crash();
        self.restart();
    }

    pub fn crash(&self) {
        let data = self.folder.join("data");
        run(command(programs().join("pg_ctl")).args(["stop", "-m", "immediate", "-w", "-D"]).arg(data));
    }

    pub fn restart(&mut self) {
        self.server.end();
        self.server = launch(&self.folder, self.port, &self.settings);
        self.await_answer();
    }
}

fn launch(folder: &Folder, port: u16, settings: &[String]) -> Server {
    let mut arguments =
        vec!["-D".to_owned(), folder.join("data").display().to_string(), "-p".to_owned(), port.to_string()];
    for setting in settings {
        arguments.extend(["-c".to_owned(), setting.clone()]);
    }
    Server::start(&programs().join("postgres"), &arguments, &folder.join("log"), "QUIT")
}

/// pgbouncer in transaction mode before a server.
pub struct Pgbouncer {
    port: u16,
    _server: Server,
    _folder: Folder,
}

impl Pgbouncer {
    pub fn start(postgres: &Postgres) -> Pgbouncer {
        let (folder, port) = (Folder::new("pgbouncer"), free_port());
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n\
             pool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 20\nunix_socket_dir =\n",
            postgres.port
        );
        // With `auth_type = any` everybody is this user.
        let settings = settings.replace("* = ", "* = user=postgres ");
        let file = folder.join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("pgbouncer's settings");
        let arguments = [file.display().to_string()];
        let server = Server::start(Path::new("/usr/sbin/pgbouncer"), &arguments, &folder.join("log"), "INT");
        until("pgbouncer", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string())
        });
        Pgbouncer { port, _server: server, _folder: folder }
    }

    /// The URL of a database behind it, given the server's own.
    pub fn url(&self, direct: &str) -> String {
        let database = direct.rsplit('/').next().unwrap_or_default();
        format!("postgresql://postgres@127.0.0.1:{}/{database}", self.port)
    }
}
