//! A browser for the tests of the dashboard: Debian's Chromium, driven by its own driver.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::given;
use crate::packages;

/// Read by us to use a driver that is there, and by the tests that start it.
pub(super) const VARIABLE: &str = "ONCEBOX_TEST_CHROMEDRIVER";

/// The driver. Its package brings the browser too.
pub(super) fn driver() -> Result<PathBuf> {
    if let Some(program) = given::read(VARIABLE)?.map(PathBuf::from) {
        if !program.is_absolute() || !packages::is_program(&program) {
            bail!("{VARIABLE} is not the absolute path of a program: {}", program.display());
        }
        return Ok(program);
    }
    packages::find_or_install(
        || packages::on_path("chromedriver"),
        "chromium-driver",
        "Chromium's driver (chromedriver on PATH)",
        &format!(", or set {VARIABLE} to the path of one"),
    )
}
