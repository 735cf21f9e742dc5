//! Services that are already running, named by the environment.

use std::env::{self, VarError};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Service;

/// A value from the environment that led to something that listens. It may hold a password, so it is not
/// printed.
pub(super) struct Given(String);

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Given(..)")
    }
}

impl Given {
    /// The one of the environment, if it names one.
    pub(super) fn find(service: Service) -> Result<Option<Self>> {
        let variable = service.variable();
        let Some(value) = read(variable)? else { return Ok(None) };
        let url = |schemes: &[&str], port: u16, example: &str| {
            let address = url_address(&value, schemes, port);
            address
                .map(|address| vec![address])
                .with_context(|| format!("{variable} is not a URL such as {example}"))
        };
        let mysql = "mysql://root@127.0.0.1:3306/mysql";
        let addresses = match service {
            Service::Postgres => {
                let example = "postgres://postgres@127.0.0.1:5432/postgres";
                url(&["postgres://", "postgresql://"], 5432, example)?
            }
            Service::Mariadb | Service::Mysql => url(&["mysql://", "mariadb://"], 3306, mysql)?,
            Service::Mongodb => set_addresses(&value).with_context(|| {
                format!("{variable} is not a URL such as mongodb://127.0.0.1:27017/?replicaSet=rs0")
            })?,
            Service::Rabbitmq => url(&["amqp://"], 5672, "amqp://guest:guest@127.0.0.1:5672/%2f")?,
            Service::Kafka => value.split(',').map(|part| part.trim().to_owned()).collect(),
        };
        reach(service, &addresses)?;
        Ok(Some(Self(value)))
    }

    pub(super) fn value(&self) -> &str {
        &self.0
    }
}

/// The variable's value; empty is none.
pub(super) fn read(name: &str) -> Result<Option<String>> {
    match env::var(name) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => bail!("{name} is not valid UTF-8"),
    }
}

/// `host:port` of a database's URL.
fn url_address(url: &str, schemes: &[&str], port: u16) -> Option<String> {
    let rest = schemes.iter().find_map(|scheme| url.strip_prefix(scheme))?;
    let authority = rest.split(['/', '?']).next()?;
    let host_port = authority.rsplit('@').next().filter(|text| !text.is_empty())?;
    // The last colon of "[::1]" belongs to the address.
    let has_port = host_port.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
    Some(if has_port { host_port.to_owned() } else { format!("{host_port}:{port}") })
}

/// The members of a replica set.
fn set_addresses(url: &str) -> Option<Vec<String>> {
    let scheme = "mongodb://";
    let authority = url.strip_prefix(scheme)?.split(['/', '?']).next()?;
    let hosts = authority.rsplit('@').next()?;
    hosts.split(',').map(|host| url_address(&format!("{scheme}{host}"), &[scheme], 27017)).collect()
}

/// Any of the addresses accepts a connection.
fn reach(service: Service, addresses: &[String]) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(5);
    let (name, variable) = (service.name(), service.variable());
    for address in addresses {
        let Ok(resolved) = address.to_socket_addrs() else { continue };
        for socket in resolved {
            if TcpStream::connect_timeout(&socket, LIMIT).is_ok() {
                eprintln!("xtask: {name} on {address}, from {variable}");
                return Ok(());
            }
        }
    }
    bail!(
        "{variable} is set, and nothing accepts connections on {}. Start {name} there, or unset {variable} \
         to have one started for this run",
        addresses.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::{set_addresses, url_address};

    #[test]
    fn the_address_of_a_url() {
        let address = |url| url_address(url, &["postgres://", "postgresql://"], 5432).unwrap_or_default();
        assert_eq!(address("postgres://postgres@127.0.0.1:6000/postgres"), "127.0.0.1:6000");
        assert_eq!(address("postgresql://me:p@ss:1@db/erp?sslmode=require"), "db:5432");
        assert_eq!(address("postgres://[::1]"), "[::1]:5432");
        assert_eq!(address("postgres://[::1]:7000"), "[::1]:7000");
    }

    #[test]
    fn the_members_of_a_set() {
        let addresses = |url| set_addresses(url).unwrap_or_default();
        assert_eq!(addresses("mongodb://127.0.0.1:57017/?replicaSet=rs0"), ["127.0.0.1:57017"]);
        assert_eq!(addresses("mongodb://me:secret@a,b:27018/erp"), ["a:27017", "b:27018"]);
        assert_eq!(set_addresses("mongodb://a,,b"), None);
        assert_eq!(set_addresses("127.0.0.1:27017"), None);
    }

    #[test]
    fn something_else_is_not_a_url() {
        let address = |url| url_address(url, &["mysql://"], 3306);
        assert_eq!(address("127.0.0.1:3306"), None);
        assert_eq!(address("mysql:///erp"), None);
        assert_eq!(address("postgres://127.0.0.1/erp"), None);
    }
}
