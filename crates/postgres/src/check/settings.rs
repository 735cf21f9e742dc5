//! What the server and the connection are like.

use oncebox_core::store::Finding;
use sqlx::Row;
use sqlx::postgres::PgRow;

/// The oldest server that has what purge needs: reading a table by ranges of its pages.
const OLDEST_MAJOR: i32 = 14;

pub(super) const FACTS: &str = "SELECT current_setting('server_version') AS version, \
     current_setting('server_version_num')::int / 10000 AS major, \
     current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes, \
     current_setting('synchronous_commit') AS synchronous_commit, current_setting('autovacuum') AS autovacuum, \
     current_setting('default_transaction_isolation') AS isolation, \
     current_setting('server_encoding') AS encoding, \
     has_database_privilege(current_database(), 'TEMP') AS temp, \
     COALESCE((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS encrypted, \
     COALESCE(inet_client_addr() <<= '127.0.0.0/8' OR inet_client_addr() = '::1', true) AS local, \
     (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";

pub(super) fn findings(facts: &PgRow) -> sqlx::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let text = |name: &str| facts.try_get::<String, _>(name);
    let version = text("version")?;
    findings.push(if facts.try_get::<i32, _>("major")? < OLDEST_MAJOR {
        Finding::error("version", format!("PostgreSQL {version}; oncebox needs {OLDEST_MAJOR} or newer"))
    } else {
        Finding::ok("version", format!("PostgreSQL {version}"))
    });
    for setting in ["fsync", "full_page_writes"] {
        findings.push(if text(setting)? == "on" {
            Finding::ok(setting, "on")
        } else {
            Finding::warning(
                setting,
                format!("off: a crash of the machine can destroy the database. Set {setting} = on"),
            )
        });
    }
    let commit = text("synchronous_commit")?;
    findings.push(if commit == "off" {
        Finding::warning(
            "synchronous_commit",
            "off: a crash can undo the last commits after their messages were acknowledged. The position is undone \
             with them, so Kafka messages are read again; messages of other sources are lost. Set it to on",
        )
    } else {
        Finding::ok("synchronous_commit", commit)
    });
    findings.push(if text("autovacuum")? == "on" {
        Finding::ok("autovacuum", "on")
    } else {
        Finding::warning(
            "autovacuum",
            "off: purged receipts and old positions keep their space. Set autovacuum = on",
        )
    });
    let isolation = text("isolation")?;
    findings
        .push(Finding::ok("isolation", format!("server default {isolation}; oncebox uses read committed")));
    let encoding = text("encoding")?;
    findings.push(if encoding == "UTF8" {
        Finding::ok("encoding", encoding)
    } else {
        Finding::warning(
            "encoding",
            format!("{encoding}: ids and payloads with other characters are dead-lettered"),
        )
    });
    findings.push(if facts.try_get("temp")? {
        Finding::ok("temporary functions", "allowed")
    } else {
        Finding::warning(
            "temporary functions",
            "not allowed: handlers in SQL cannot run. GRANT TEMPORARY ON DATABASE … TO …",
        )
    });
    let encrypted: bool = facts.try_get("encrypted")?;
    let local: bool = facts.try_get("local")?;
    findings.push(match (encrypted, local) {
        (true, _) => Finding::ok("encryption", "TLS"),
        (false, true) => Finding::ok("encryption", "none, and the server is on this machine"),
        (false, false) => Finding::warning(
            "encryption",
            "none: messages and the password cross the network in the clear. Add ?sslmode=verify-full to store.url",
        ),
    });
    Ok(findings)
}
