//! What both services are about.

/// A command, and the order that it becomes.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Order {
    /// The number of the order; also the id of the command.
    pub(crate) order: String,
    pub(crate) sku: String,
    pub(crate) qty: i32,
}

/// Where commands come from.
pub(crate) const COMMANDS: &str = "order.commands";
/// Where it is said that an order was made.
pub(crate) const CREATED: &str = "order.created";
