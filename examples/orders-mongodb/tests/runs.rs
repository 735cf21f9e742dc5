//! The example does what it says: the two-step way loses an order in every crash, oncebox none.

use std::process::Command;

#[test]
fn the_two_step_way_loses_orders_and_oncebox_does_not() -> std::io::Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_example-orders-mongodb")).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    let row = |what: &str| -> Vec<usize> {
        let row = printed.lines().find(|line| line.trim_start().starts_with(what)).unwrap_or_default();
        row.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    assert_eq!(row("orders in the database"), [116, 120]);
    assert_eq!(row("lost"), [4, 0], "one for each crash");
    assert_eq!(row("made twice"), [0, 0]);
    assert_eq!(row("orders told to others"), [116, 120]);
    Ok(())
}
