//! The example does what it says: it checks its own result.

use std::process::Command;

#[test]
fn the_example_runs() -> std::io::Result<()> {
    let status = Command::new(env!("CARGO_BIN_EXE_example-own-loop")).status()?;
    assert!(status.success(), "{status}");
    Ok(())
}
