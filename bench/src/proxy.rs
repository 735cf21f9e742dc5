//! A network in between: everything that passes is held back for a moment, each way.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Listens on a free port and passes everything to `target`, `delay` later in each direction. Threads and not tasks: the
/// timers of the async runtime are too coarse for a quarter of a millisecond.
pub(crate) fn start(target: SocketAddr, delay: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if let Ok(server) = TcpStream::connect(target) {
                for (from, to) in [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))] {
                    if let (Ok(from), Ok(to)) = (from, to) {
                        to.set_nodelay(true).ok();
                        pass(from, to, delay);
                    }
                }
            }
        }
    });
    Ok(address)
}

/// What is read at a moment is written `delay` after it, in order, so the bandwidth is not limited.
fn pass(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, Vec<u8>)>(1_024);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read) = from.read(&mut buffer) {
            if read == 0 || sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Both).ok();
    });
}
