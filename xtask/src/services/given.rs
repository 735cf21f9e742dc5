//! Services that are already running, named by the environment.

use std::env::{self, VarError};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Result, bail};

use super::{KAFKA, POSTGRES};

/// A value from the environment that led to something that listens. It may hold a password, so it is not
/// printed.
pub(super) struct Given(String);

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Given(..)")
    }
}

impl Given {
    /// The PostgreSQL of the environment, if it names one.
    pub(super) fn postgres() -> Result<Option<Self>> {
        let Some(value) = variable(POSTGRES)? else { return Ok(None) };
        let Some(address) = url_address(&value) else {
            bail!("{POSTGRES} is not a URL such as postgres://postgres@127.0.0.1:5432/postgres");
        };
        reach("PostgreSQL", POSTGRES, &[address])?;
        Ok(Some(Self(value)))
    }

    /// The Kafka of the environment, if it names one.
    pub(super) fn kafka() -> Result<Option<Self>> {
        let Some(value) = variable(KAFKA)? else { return Ok(None) };
        let addresses: Vec<String> = value.split(',').map(|part| part.trim().to_owned()).collect();
        reach("Kafka", KAFKA, &addresses)?;
        Ok(Some(Self(value)))
    }

    pub(super) fn value(&self) -> &str {
        &self.0
    }
}

fn variable(name: &str) -> Result<Option<String>> {
    match env::var(name) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => bail!("{name} is not valid UTF-8"),
    }
}

/// `host:port` of a PostgreSQL URL.
fn url_address(url: &str) -> Option<String> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))?;
    let authority = rest.split(['/', '?']).next()?;
    let host_port = authority.rsplit('@').next().filter(|text| !text.is_empty())?;
    // The last colon of "[::1]" belongs to the address.
    let has_port = host_port.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
    Some(if has_port { host_port.to_owned() } else { format!("{host_port}:5432") })
}

/// Any of the addresses accepts a connection.
fn reach(service: &str, variable: &str, addresses: &[String]) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(5);
    for address in addresses {
        let Ok(resolved) = address.to_socket_addrs() else { continue };
        for socket in resolved {
            if TcpStream::connect_timeout(&socket, LIMIT).is_ok() {
                eprintln!("xtask: {service} on {address}, from {variable}");
                return Ok(());
            }
        }
    }
    bail!(
        "{variable} is set, and nothing accepts connections on {}. Start {service} there, or unset {variable} \
         to have one started for this run",
        addresses.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::url_address;

    #[test]
    fn the_address_of_a_url() {
        let address = |url| url_address(url).unwrap_or_default();
        assert_eq!(address("postgres://postgres@127.0.0.1:6000/postgres"), "127.0.0.1:6000");
        assert_eq!(address("postgresql://me:p@ss:1@db/erp?sslmode=require"), "db:5432");
        assert_eq!(address("postgres://[::1]"), "[::1]:5432");
        assert_eq!(address("postgres://[::1]:7000"), "[::1]:7000");
    }

    #[test]
    fn something_else_is_not_a_url() {
        assert_eq!(url_address("127.0.0.1:5432"), None);
        assert_eq!(url_address("postgres:///erp"), None);
    }
}
