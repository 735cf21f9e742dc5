//! The example does what it says: it checks its own result.

use std::process::Command;

#[test]
fn the_second_run_goes_on_where_the_first_ended() -> std::io::Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_example-own-source")).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(printed.lines().count(), 3, "four lines, one of them twice");
    Ok(())
}
