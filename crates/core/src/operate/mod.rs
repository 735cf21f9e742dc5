//! What operators do, the same on the command line and on the dashboard.
//!
//! Whatever changes something goes through an [`Operator`], who has a name: each act is in the audit of the database before it is
//! done, and what came of it afterwards. What only looks is a function: [`find()`], [`page()`], [`event_page`], [`whole_page`],
//! [`dry_run()`].

mod audit;
mod discard;
mod dry_run;
mod edit;
mod events;
mod find;
mod page;
mod replay;
mod upkeep;
mod whole;

pub use audit::{Ongoing, Operator, as_parameters};
pub use dry_run::{DryRun, Would, dry_run};
pub use edit::Edited;
pub use events::EventChange;
pub use find::{Found, FoundAt, TRACE_HEADER, find, trace_id};
pub use page::{EventPage, LetterPage, event_page, page};
pub use replay::{ReplayCounts, ReplayFailure, ReplayOrder, ReplayReport, Target};
pub use upkeep::{UPKEEP_INTERVAL, group_all, upkeep_loop};
pub use whole::{WholePage, whole_page};
