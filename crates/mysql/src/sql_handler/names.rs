//! The names that a handler's statements must not use: those of local variables, which would win over columns, and those of
//! the session, by which an error is found.

use oncebox_sql::Param;

/// What the names of our variables in a session begin with.
pub(super) const OURS: &str = "oncebox_";

/// What the names of local variables begin with.
pub(super) const RESERVED: &str = "oncebox_p_";

/// The local variable of a parameter.
pub(super) fn variable(param: Param) -> String {
    format!("{RESERVED}{}", param.name())
}
