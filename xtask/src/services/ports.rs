//! Free ports on loopback.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

const ATTEMPTS: u32 = 5;

/// The error of a server that found its port in use.
#[derive(Debug)]
pub(crate) struct PortTaken;

impl fmt::Display for PortTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port that was free is taken")
    }
}

impl std::error::Error for PortTaken {}

/// Starts a server on ports that are free. Between the look and the server's own bind another process may take
/// one, hence the retries.
pub(super) fn with_free<const N: usize, T>(mut start: impl FnMut([u16; N]) -> Result<T>) -> Result<T> {
    let mut attempt = 1;
    loop {
        match start(free()?) {
            Err(error) if error.is::<PortTaken>() && attempt < ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

fn free<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    // All stay bound until all are chosen, so they differ.
    let mut bound = Vec::with_capacity(N);
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
        *port = listener.local_addr()?.port();
        bound.push(listener);
    }
    Ok(ports)
}

/// Whether somebody listens there.
pub(super) fn accepts(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_tried_again_elsewhere() {
        let mut calls = 0;
        let port = with_free(|[port]: [u16; 1]| {
            calls += 1;
            if calls < 3 { Err(anyhow::Error::new(PortTaken).context("log")) } else { Ok(port) }
        });
        assert!(port.is_ok_and(|port| port > 0));
        assert_eq!(calls, 3);
    }

    #[test]
    fn not_for_ever() {
        let mut calls = 0;
        let result = with_free(|_: [u16; 1]| -> Result<()> {
            calls += 1;
            Err(PortTaken.into())
        });
        assert!(result.is_err());
        assert_eq!(calls, ATTEMPTS);
    }

    #[test]
    fn another_failure_is_final() {
        let mut calls = 0;
        let result = with_free(|_: [u16; 1]| -> Result<()> {
            calls += 1;
            anyhow::bail!("no disk")
        });
        assert!(result.is_err());
        assert_eq!(calls, 1);
    }
}
