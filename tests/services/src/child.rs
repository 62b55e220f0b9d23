//! A server's process and its folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The unprivileged user that servers run as when the tests run as root.
const USER: &str = "postgres";

/// Removes its folder when its input ends, which it does when we do. Servers may still be writing there for a moment.
const KEEPER: &str =
    r#"cat >/dev/null; for i in $(seq 50); do rm -rf "$1" 2>/dev/null; sleep 0.1; [ -e "$1" ] || exit; done"#;

/// A temporary folder that the servers' user may write to.
pub(crate) struct Folder {
    path: PathBuf,
    keeper: Child,
}

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = tempfile::Builder::new().prefix(&format!("geonce-{name}-")).tempdir().expect("a folder").keep();
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(&path).stdin(Stdio::piped());
        let keeper = command.spawn().expect("a shell");
        give(&path);
        Folder { path, keeper }
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Makes a file or folder of ours the servers' own.
pub(crate) fn give(path: &Path) {
    if is_root() {
        run(Command::new("chown").arg(USER).arg(path));
    }
}

pub(crate) fn is_root() -> bool {
    // The owner of one's own entry in /proc is oneself.
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// A command that runs as the servers' user.
pub(crate) fn command(program: impl AsRef<Path>) -> Command {
    if is_root() {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups", "--"]);
        command.arg(program.as_ref());
        command
    } else {
        Command::new(program.as_ref())
    }
}

/// Runs a command to its end; its output if it fails.
pub(crate) fn try_run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        format!("{}: {error}; the README says what has to be installed for the tests", command.get_program().display())
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{command:?}: {}{}", text(&output.stderr), text(&output.stdout)))
    }
}

pub(crate) fn run(command: &mut Command) -> String {
    try_run(command).unwrap_or_else(|error| panic!("{error}"))
}

/// Ends its server when its input ends, which it does when we do.
const SUPERVISOR: &str = r#"
signal=$1; shift
exec 3<&0
"$@" </dev/null 3<&- & server=$!
(
  cat <&3 >/dev/null
  kill -"$signal" $server 2>/dev/null
  for i in $(seq 100); do kill -0 $server 2>/dev/null || exit; sleep 0.1; done
  kill -KILL $server 2>/dev/null
) & watch=$!
wait $server
kill $watch 2>/dev/null
"#;

/// A server under its supervisor.
pub(crate) struct Server {
    supervisor: Child,
}

impl Server {
    /// Starts `program` with `arguments`. Its output goes to `log`; `signal` ends it.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path, signal: &str) -> Server {
        let log = File::options().create(true).append(true).open(log).expect("the server's log");
        let mut command = Command::new("sh");
        command.args(["-c", SUPERVISOR, "supervisor", signal]);
        let server = self::command(program);
        command.arg(server.get_program()).args(server.get_args()).args(arguments);
        command.stdin(Stdio::piped()).stdout(log.try_clone().expect("the log twice")).stderr(log);
        Server { supervisor: command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display())) }
    }

    /// Ends it and waits for that.
    pub(crate) fn end(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
