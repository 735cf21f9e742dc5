//! Migrations: interrupted, by hand, and in databases with other defaults.

use std::io::Write;
use std::process::{Command, Stdio};

use oncebox_core::store::{Check, FindingLevel, Migrate, Migration};
use oncebox_mysql::MysqlStore;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection};

use super::support::{Database, apply, execute, number, with_database};

/// Cuts a script as the command-line client does.
fn statements(script: &str) -> Vec<String> {
    let (mut statements, mut current, mut delimiter) = (Vec::new(), String::new(), ";".to_owned());
    for line in script.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("--")) {
        if let Some(next) = line.strip_prefix("DELIMITER ") {
            delimiter = next.trim().to_owned();
        } else if let Some(last) = line.trim_end().strip_suffix(&delimiter) {
            statements.push(format!("{current}{last}"));
            current.clear();
        } else {
            current.push_str(&format!("{line}\n"));
        }
    }
    statements
}

/// Whether the schema is whole: it says so, and it works.
async fn assert_usable(store: &MysqlStore) {
    let findings = store.check(4 << 20).await.unwrap();
    let errors: Vec<_> = findings.iter().filter(|finding| finding.level == FindingLevel::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(apply(store, &["a", "a "]).await, [true, true]);
}

#[tokio::test]
async fn a_migration_that_was_interrupted_goes_on() {
    let database = Database::create().await;
    let store = MysqlStore::connect(&database.url).await.unwrap();
    let steps: Vec<Migration> = store.migrations().await.unwrap();
    let all: Vec<String> = steps.iter().flat_map(|step| statements(&step.script)).collect();
    for done in 0..=all.len() {
        let name = format!("{}_{done}", database.name);
        let url = database.url.replace(&database.name, &name);
        execute(&database.url, &format!("CREATE DATABASE {name}")).await;
        let mut conn = MySqlConnection::connect(&url).await.unwrap();
        for statement in &all[..done] {
            sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut conn).await.unwrap();
        }
        let store = MysqlStore::connect(&url).await.unwrap();
        let result = store.migrate().await.map(|applied| applied.len());
        if result.is_ok() {
            assert_usable(&store).await;
        }
        drop(store);
        execute(&database.url, &format!("DROP DATABASE {name}")).await;
        let written =
            all[..done].iter().filter(|one| one.starts_with("INSERT INTO oncebox_migrations")).count();
        assert_eq!(result.unwrap(), steps.len() - written, "after {done} statements");
    }
}

#[tokio::test]
async fn a_script_can_be_piped_through_the_client() {
    let database = Database::create().await;
    let options: &MySqlConnectOptions = &database.server;
    let client = Command::new("mysql")
        .args(["--batch", "--host", options.get_host(), "--port", &options.get_port().to_string()])
        .args(["--user", options.get_username(), &database.name])
        .stdin(Stdio::piped())
        .spawn();
    let mut client = match client {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("not run: the client `mysql` is not installed");
            return;
        }
        client => client.unwrap(),
    };
    let store = MysqlStore::connect(&database.url).await.unwrap();
    let mut script = client.stdin.take().unwrap();
    for step in store.migrations().await.unwrap() {
        script.write_all(step.script.as_bytes()).unwrap();
    }
    drop(script);
    assert!(client.wait().unwrap().success());
    assert!(store.migrate().await.unwrap().is_empty());
    assert_usable(&store).await;
}

#[tokio::test]
async fn a_database_with_another_character_set_is_no_difference() {
    for charset in ["latin1", "utf8mb3", "utf8mb4 COLLATE utf8mb4_general_ci"] {
        with_database(|url| async move {
            execute(&url, &format!("ALTER DATABASE CHARACTER SET {charset}")).await;
            let store = MysqlStore::connect(&url).await.unwrap();
            store.migrate().await.unwrap();
            assert_usable(&store).await;
            execute(&url, "CALL oncebox_claim('stock', 'Größe', '', @fresh); CALL oncebox_claim('stock', 'größe', '', @fresh)")
                .await;
            assert_eq!(apply(&store, &["Größe", "größe", "GRÖSSE"]).await, [false, false, true], "{charset}");
        })
        .await;
    }
}

#[tokio::test]
async fn the_mode_of_the_server_is_no_difference() {
    let database = Database::create_alone().await;
    let mut conn = database.server.connect().await.unwrap();
    let modes: String = sqlx::query_scalar("SELECT @@GLOBAL.sql_mode").fetch_one(&mut conn).await.unwrap();
    for mode in ["ANSI", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES", "TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH", ""] {
        let mode = if crate::SERVER.ends_with("MYSQL") {
            mode.replace(",PAD_CHAR_TO_FULL_LENGTH", "")
        } else {
            mode.into()
        };
        let back = format!("sql_mode = '{modes}'");
        let set = super::support::Setting::of(&database, &format!("sql_mode = '{mode}'"), &back).await;
        let name = format!("{}_mode", database.name);
        let url = database.url.replace(&database.name, &name);
        execute(&database.url, &format!("CREATE DATABASE {name}")).await;
        let store = MysqlStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        assert_usable(&store).await;
        execute(&url, "CALL oncebox_claim('stock', 'by ''hand''', '', @fresh)").await;
        assert_eq!(apply(&store, &["by 'hand'", "back\\slash"]).await, [false, true], "{mode}");
        drop((store, set));
        execute(&database.url, &format!("DROP DATABASE {name}")).await;
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_make_tables_can_find_that_nothing_is_to_do() {
    let database = Database::create().await;
    let maker = database.user("SELECT, INSERT, UPDATE, CREATE, ALTER, CREATE ROUTINE, ALTER ROUTINE").await;
    let user = database.user("SELECT, INSERT, UPDATE, DELETE").await;
    let store = MysqlStore::connect(&user.url).await.unwrap();
    assert!(store.migrate().await.unwrap_err().to_string().contains("migrating"));
    MysqlStore::connect(&maker.url).await.unwrap().migrate().await.unwrap();
    assert!(store.migrate().await.unwrap().is_empty());
    assert_usable(&store).await;
    assert_eq!(number(&database.url, "SELECT COUNT(*) FROM oncebox_inbox").await, 2);
}
