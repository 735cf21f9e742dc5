//! What the reader of the file has to be told, because it belongs to others.

use std::collections::BTreeMap;
use std::fmt;

use oncebox_sql::{PayloadKind, Sql, StatementError};

use super::store::StoreKind;

/// What belongs to others: the environment, the dialects of the stores, the rules of the Kafka client. By default the
/// environment is empty and nothing is refused.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The environment, for `${VAR}` in a value.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Whether a store would read this SQL in another way than it is meant.
    pub check_dialect: &'a dyn Fn(StoreKind, &Sql) -> Result<(), StatementError>,
    /// What is wrong with an operation of a store that does not speak SQL, given as JSON.
    pub check_operation: &'a dyn Fn(StoreKind, OperationUse, &str) -> Vec<OperationProblem>,
    /// What is wrong with the path of an inbox that takes requests.
    pub check_path: &'a dyn Fn(&str) -> Result<(), String>,
    /// What is wrong with a filter of the log.
    pub check_log: &'a dyn Fn(&str) -> Result<(), String>,
    /// Why a property of `[kafka.properties]` may not have this value, by its name and value.
    pub refused_property: &'a dyn Fn(&str, &str) -> Option<RefusedProperty>,
    /// What is missing in a table of such properties, or does not go together, with the name of the property.
    pub refused_together: &'a CheckTogether,
    /// What is wrong with a pattern of topics: a regular expression that begins with `^`.
    pub check_topic_pattern: &'a dyn Fn(&str) -> Result<(), String>,
}

/// Looks at a table of properties as a whole.
pub type CheckTogether = dyn Fn(&BTreeMap<String, String>) -> Option<(String, RefusedProperty)>;

/// Where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationUse {
    /// In `each`, with this kind of payload.
    Each(PayloadKind),
    /// In `batch`, with this kind of payload.
    Batch(PayloadKind),
    /// In a sweep: `{"aggregate": …, "pipeline": […]}`.
    Sweep,
}

/// What is wrong with an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationProblem {
    /// Where in the operation: keys, and numbers of items counted from 0.
    pub path: Vec<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub fix: String,
}

/// Why a property may not be set, or not to this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedProperty {
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub fix: String,
    /// The key of `oncebox.toml` that serves the purpose, if there is one.
    pub instead: Option<&'static str>,
}

impl Default for Surroundings<'_> {
    fn default() -> Self {
        Self {
            env: &|_| None,
            check_dialect: &|_, _| Ok(()),
            check_operation: &|_, _, _| Vec::new(),
            check_path: &|_| Ok(()),
            check_log: &|_| Ok(()),
            refused_property: &|_, _| None,
            refused_together: &|_| None,
            check_topic_pattern: &|_| Ok(()),
        }
    }
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}
