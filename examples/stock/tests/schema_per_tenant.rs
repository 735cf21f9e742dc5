//! The part of the example that needs PostgreSQL, in a database of its own.

use std::process::Command;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

#[tokio::test]
async fn a_schema_per_tenant_works() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::var("ONCEBOX_TEST_POSTGRES")?;
    let (base, _) = server.rsplit_once('/').ok_or("the URL has no database")?;
    let name = format!("example_stock_{}", uuid::Uuid::now_v7().simple());
    let mut admin = PgConnection::connect(&server).await?;
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await?;
    let example = Command::new(env!("CARGO_BIN_EXE_example-stock")).arg(format!("{base}/{name}")).status();
    sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).execute(&mut admin).await?;
    let status = example?;
    assert!(status.success(), "{status}");
    Ok(())
}
