//! The example does what it says: it dies at every place, and its own verdict is good.

use std::process::Command;

#[test]
fn every_order_is_billed_once_through_all_crashes() -> std::io::Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_example-billing")).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    assert!(printed.ends_with("every order was billed once\n"));
    for crash in ["BeforeCommit", "AfterCommit", "BeforeMail", "AfterMail"] {
        assert!(printed.contains(&format!("{crash}: signal: 6 (SIGABRT)")), "no crash at {crash}");
    }
    Ok(())
}
