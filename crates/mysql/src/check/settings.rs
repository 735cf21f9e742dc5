//! What the server and the connection are like.

use std::collections::HashMap;

use oncebox_core::store::Finding;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use crate::claim::MAX_MESSAGE_BYTES;

/// The oldest servers that have what the statements need.
const OLDEST_MARIADB: [u32; 3] = [10, 6, 0];
const OLDEST_MYSQL: [u32; 3] = [8, 0, 19];

/// Below this, not even the receipts of a batch get through.
const LEAST_PACKET: u64 = 1024 * 1024;
const _: () = assert!(2 * MAX_MESSAGE_BYTES as u64 <= LEAST_PACKET, "a message of receipts fits twice");
/// How many times as long as its messages a batch may be as text in a statement.
const TEXT_FACTOR: u64 = 4;

/// Settings of the server, by name.
pub(super) type Variables = HashMap<String, String>;

/// The settings of the session, and of the server where a session has none of its own.
pub(super) async fn variables(conn: &mut MySqlConnection, names: &[&str]) -> sqlx::Result<Variables> {
    shown(conn, "SESSION VARIABLES", names).await
}

async fn shown(conn: &mut MySqlConnection, what: &str, names: &[&str]) -> sqlx::Result<Variables> {
    // Names of our own, from this crate.
    let sql = format!("SHOW {what} WHERE Variable_name IN ('{}')", names.join("', '"));
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await?;
    let pair = |row: &sqlx::mysql::MySqlRow| {
        Ok((row.try_get::<String, _>(0)?.to_lowercase(), row.try_get::<String, _>(1)?))
    };
    rows.iter().map(pair).collect()
}

const OF_SESSION: [&str; 8] = [
    "binlog_format",
    "innodb_flush_log_at_trx_commit",
    "log_bin",
    "sync_binlog",
    "sql_mode",
    "max_allowed_packet",
    "innodb_rollback_on_timeout",
    "version_comment",
];
const OF_SERVER: [&str; 5] =
    ["wait_timeout", "time_zone", "system_time_zone", "transaction_isolation", "tx_isolation"];

pub(super) async fn findings(conn: &mut MySqlConnection, largest_batch: usize) -> sqlx::Result<Vec<Finding>> {
    let facts =
        sqlx::query("SELECT VERSION(), SUBSTRING_INDEX(USER(), '@', -1)").fetch_one(&mut *conn).await?;
    let (server, client): (String, String) = (facts.try_get(0)?, facts.try_get(1)?);
    let mut all = shown(conn, "GLOBAL VARIABLES", &OF_SERVER).await?;
    all.extend(variables(conn, &OF_SESSION).await?);
    let cipher = shown(conn, "SESSION STATUS", &["Ssl_cipher"]).await?.remove("ssl_cipher");
    let encrypted = cipher.is_some_and(|cipher| !cipher.is_empty());
    let mut findings = vec![version(&server, all.get("version_comment").map_or("", String::as_str))];
    findings.extend(of_variables(&all, largest_batch));
    findings.push(encryption(encrypted, &client));
    Ok(findings)
}

fn version(version: &str, comment: &str) -> Finding {
    let said = format!("{version} {comment}").to_lowercase();
    if let Some(name) =
        ["TiDB", "OceanBase", "SingleStore", "Vitess"].iter().find(|name| said.contains(&name.to_lowercase()))
    {
        return Finding::warning(
            "version",
            format!(
                "{name} {version}: oncebox was tried with MariaDB and MySQL only. Run the tests of your handlers on it, and \
                 kill processes and connections while they run"
            ),
        );
    }
    let (name, oldest) =
        if said.contains("mariadb") { ("MariaDB", OLDEST_MARIADB) } else { ("MySQL", OLDEST_MYSQL) };
    if numbers(version) < oldest {
        let [major, minor, patch] = oldest;
        let needed = format!("{name} {version}; oncebox needs {major}.{minor}.{patch} or newer");
        return Finding::error("version", needed);
    }
    Finding::ok("version", format!("{name} {version}"))
}

/// The first three numbers. MariaDB behind some proxies says 5.5.5- first.
fn numbers(version: &str) -> [u32; 3] {
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

fn of_variables(all: &Variables, largest_batch: usize) -> Vec<Finding> {
    let of = |name: &str| all.get(name).map_or("", String::as_str);
    let mut findings =
        vec![durability("innodb_flush_log_at_trx_commit", of("innodb_flush_log_at_trx_commit"))];
    if of("log_bin") == "ON" {
        findings.push(durability("sync_binlog", of("sync_binlog")));
        findings.extend((of("binlog_format") == "STATEMENT").then(|| {
            Finding::error(
                "binlog_format",
                "STATEMENT: the server refuses what READ COMMITTED writes. Set it to ROW",
            )
        }));
    }
    findings.push(if of("sql_mode").split(',').any(|mode| mode.starts_with("STRICT_")) {
        Finding::ok("sql_mode", "strict")
    } else {
        Finding::warning(
            "sql_mode",
            "not strict: values of your handlers that do not fit a column are cut without an error. Add STRICT_TRANS_TABLES",
        )
    });
    findings.extend(of("max_allowed_packet").parse().ok().map(|bytes| packet(bytes, largest_batch as u64)));
    if let Ok(seconds) = of("wait_timeout").parse::<u64>() {
        let detail = format!("server default {seconds} s; oncebox sets its own limit in its sessions");
        findings.push(Finding::ok("wait_timeout", detail));
    }
    let zone = match of("time_zone") {
        "SYSTEM" => format!("SYSTEM ({})", of("system_time_zone")),
        zone => zone.to_owned(),
    };
    findings.push(Finding::ok("time zone", format!("server default {zone}; oncebox keeps times in UTC")));
    let isolation = [of("transaction_isolation"), of("tx_isolation")].concat();
    findings.push(Finding::ok(
        "isolation",
        format!(
            "server default {}; oncebox uses READ-COMMITTED",
            if isolation.is_empty() { "unknown" } else { &isolation }
        ),
    ));
    findings.push(Finding::ok(
        "innodb_rollback_on_timeout",
        if of("innodb_rollback_on_timeout") == "ON" {
            "on: a lock wait that takes too long undoes the whole transaction"
        } else {
            "off: a lock wait that takes too long undoes its statement only, and oncebox undoes the rest. A handler must not \
             swallow this error (1205)"
        },
    ));
    findings
}

fn durability(setting: &str, value: &str) -> Finding {
    if value == "1" {
        return Finding::ok(setting, "1");
    }
    Finding::warning(
        setting,
        format!(
            "{value}: a crash of the machine can undo the last commits after their messages were acknowledged. The position is \
             undone with them, so Kafka messages are read again; messages of other sources are lost. Set it to 1"
        ),
    )
}

fn packet(bytes: u64, largest_batch: u64) -> Finding {
    let mib = |bytes: u64| bytes.div_ceil(1024 * 1024);
    let needed = largest_batch.saturating_mul(TEXT_FACTOR);
    if bytes < LEAST_PACKET {
        let detail = format!("{bytes} bytes: oncebox needs 1M at least. Set max_allowed_packet = 64M");
        return Finding::error("max_allowed_packet", detail);
    }
    if bytes < needed {
        let detail = format!(
            "{bytes} bytes, and the largest batch.bytes is {largest_batch}, which takes up to {TEXT_FACTOR} times as much: full batches \
             have to be cut. Set max_allowed_packet = {}M, or batch.bytes to {} at most",
            mib(needed),
            bytes / TEXT_FACTOR
        );
        return Finding::warning("max_allowed_packet", detail);
    }
    Finding::ok("max_allowed_packet", format!("{} MiB", bytes / (1024 * 1024)))
}

fn encryption(encrypted: bool, client: &str) -> Finding {
    let local = ["localhost", "127.0.0.1", "::1"].contains(&client);
    match (encrypted, local) {
        // The driver sends TLS records one by one and lets the network collect them, which takes 40 ms on loopback.
        (true, true) => Finding::ok(
            "encryption",
            "TLS, on this machine: batches wait 40 ms more. If the user may sign in without it, add ?ssl-mode=DISABLED to store.url",
        ),
        (true, false) => Finding::ok("encryption", "TLS"),
        (false, true) => Finding::ok("encryption", "none, and the server is on this machine"),
        (false, false) => Finding::warning(
            "encryption",
            "none: messages cross the network in the clear. Add ?ssl-mode=VERIFY_IDENTITY to store.url",
        ),
    }
}

#[cfg(test)]
mod tests {
    use oncebox_core::store::FindingLevel::{Error, Ok, Warning};

    use super::*;

    #[test]
    fn servers_are_told_apart() {
        let cases = [
            ("10.11.19-MariaDB-0+deb12u1", "Debian 12", Ok, "MariaDB 10.11"),
            ("5.5.5-10.6.4-MariaDB", "", Ok, "MariaDB"),
            ("10.5.9-MariaDB", "", Error, "10.6.0 or newer"),
            ("9.7.4-2", "(Debian)", Ok, "MySQL 9.7.4"),
            ("8.0.19", "MySQL Community Server - GPL", Ok, "MySQL 8.0.19"),
            ("8.0.18-log", "", Error, "8.0.19 or newer"),
            ("8.0.11-TiDB-v7.5.0", "TiDB Server", Warning, "TiDB"),
        ];
        for (server, comment, level, says) in cases {
            let finding = version(server, comment);
            assert_eq!(finding.level, level, "{server}");
            assert!(finding.detail.contains(says), "{}", finding.detail);
        }
    }

    #[test]
    fn settings_that_lose_something_are_told() {
        let of = |pairs: &[(&str, &str)]| {
            let all = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let bad = of_variables(&all, 4 << 20).into_iter().filter(|finding| finding.level != Ok);
            bad.map(|finding| finding.subject).collect::<Vec<_>>()
        };
        let good = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "OFF"),
            ("sync_binlog", "0"),
            ("sql_mode", "ANSI_QUOTES,STRICT_ALL_TABLES"),
            ("max_allowed_packet", "16777216"),
        ];
        assert!(of(&good).is_empty());
        let lax = [
            ("innodb_flush_log_at_trx_commit", "2"),
            ("log_bin", "ON"),
            ("sync_binlog", "0"),
            ("sql_mode", ""),
            ("max_allowed_packet", "4194304"),
        ];
        assert_eq!(
            of(&lax),
            ["innodb_flush_log_at_trx_commit", "sync_binlog", "sql_mode", "max_allowed_packet"]
        );
        assert_eq!(packet(LEAST_PACKET - 1, 1).level, Error);
        assert_eq!(packet(64 << 20, 16 << 20).level, Ok);
        let small = packet(16 << 20, 8 << 20);
        assert_eq!(small.level, Warning);
        assert!(
            small.detail.contains("max_allowed_packet = 32M, or batch.bytes to 4194304"),
            "{}",
            small.detail
        );
        assert_eq!(encryption(false, "10.0.0.7").level, Warning);
        assert_eq!(encryption(false, "localhost").level, Ok);
    }
}
