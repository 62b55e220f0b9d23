//! A proxy between a client and a server that disturbs what passes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const CHUNK_BYTES: usize = 64 << 10;
/// How often a connection that is held up looks whether it is still to be.
const LOOK: Duration = Duration::from_millis(5);

/// What happens to the traffic.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// Bytes disappear; connections stay open, new ones too.
    Hole,
    /// What the client sends arrives; what the server answers does not.
    HalfOpen,
    /// Connections are reset, new ones too.
    Reset,
    /// Every answer comes so much later.
    Delay(Duration),
    /// After a request with these bytes in it, the first and then one in `in_n`, the answer is swallowed and the connection
    /// ends: the client cannot know whether it was done.
    Swallow { bytes: &'static [u8], in_n: u64 },
}

/// A proxy that runs until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    fault: Mutex<Fault>,
    swallowed: AtomicU64,
    seen: AtomicU64,
    over: AtomicBool,
    target: SocketAddr,
}

impl State {
    fn fault(&self) -> Fault {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

impl Proxy {
    /// Stands before the server on `port`.
    pub fn start(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its number");
        let state = Arc::new(State {
            fault: Mutex::new(Fault::None),
            swallowed: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            over: AtomicBool::new(false),
            target: SocketAddr::from(([127, 0, 0, 1], port)),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.over() {
                    return;
                }
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&state, &client));
            }
        });
        Proxy { address, state }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on, counted from here.
    pub fn set(&self, fault: Fault) {
        let mut now = self.state.fault.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.seen.store(0, Ordering::Relaxed);
        *now = fault;
    }

    /// How many answers were swallowed.
    pub fn swallowed(&self) -> u64 {
        self.state.swallowed.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(state: &Arc<State>, client: &TcpStream) {
    let Ok(server) = TcpStream::connect(state.target) else { return };
    let streams = [client.try_clone(), server.try_clone()];
    let [Ok(from_client), Ok(to_server)] = streams else { return };
    for stream in [client, &server] {
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(LOOK * 20));
    }
    // Set by the way out once the answer to what it passed on is to be swallowed.
    let swallow = Arc::new(AtomicBool::new(false));
    let (out_state, out_swallow) = (Arc::clone(state), Arc::clone(&swallow));
    let out = std::thread::spawn(move || {
        pump(&out_state, from_client, to_server, |chunk| {
            if let Fault::Swallow { bytes, in_n } = out_state.fault()
                && chunk.windows(bytes.len()).any(|window| window == bytes)
                && out_state.seen.fetch_add(1, Ordering::Relaxed) % in_n == 0
            {
                out_swallow.store(true, Ordering::Relaxed);
            }
            out_state.fault() != Fault::Hole
        });
    });
    let (Ok(from_server), Ok(to_client)) = (server.try_clone(), client.try_clone()) else { return };
    pump(state, from_server, to_client, |_| {
        if swallow.load(Ordering::Relaxed) {
            state.swallowed.fetch_add(1, Ordering::Relaxed);
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
            return false;
        }
        match state.fault() {
            Fault::Hole | Fault::HalfOpen => false,
            Fault::Delay(delay) => {
                std::thread::sleep(delay);
                true
            }
            _ => true,
        }
    });
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    let _ = out.join();
}

/// Copies until one side ends, a reset is asked for or the proxy is over. What `pass` does not want is thrown away.
fn pump(state: &State, mut from: TcpStream, mut to: TcpStream, mut pass: impl FnMut(&[u8]) -> bool) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if state.over() || state.fault() == Fault::Reset {
            break;
        }
        match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) if pass(&chunk[..read]) => {
                if to.write_all(&chunk[..read]).is_err() {
                    break;
                }
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
