//! One suite that states what every store must do.
//!
//! A store's test says how to get an empty database and how to touch a table in it ([`Subject`]), and gets one named test
//! per property from [`conformance!`](crate::conformance!):
//!
//! ```text
//! struct Sqlite { directory: tempfile::TempDir }
//! impl Subject for Sqlite { … }
//! oncebox_testkit::conformance!(Sqlite);
//! ```

mod attempts;
mod batches;
mod claims;
mod fixture;
mod letters;
mod positions;
mod retention;
mod schema;
mod subject;
mod taking;
mod transactions;

pub use attempts::*;
pub use batches::*;
pub use claims::*;
pub use letters::*;
pub use positions::*;
pub use retention::*;
pub use schema::*;
pub use subject::{Conn, Subject, Verdict};
pub use taking::*;
pub use transactions::*;

/// Writes one test per property of the suite, each on a database of its own.
///
/// The calling crate needs `tokio` with its macros and the runtime with several threads.
#[macro_export]
macro_rules! conformance {
    ($subject:ty) => {
        $crate::conformance! { $subject:
            a_receipt_is_fresh_once
            a_rolled_back_receipt_is_fresh_again
            consumers_and_tenants_are_apart
            odd_ids_are_told_apart
            a_large_batch_is_claimed_whole
            a_batch_without_ids_has_a_transaction
            a_bare_claim_joins_the_transaction
            a_dropped_transaction_leaves_nothing
            an_aborted_task_leaves_nothing
            a_rolled_back_connection_is_used_again
            a_concurrent_copy_waits_and_is_a_duplicate
            a_concurrent_copy_is_fresh_if_the_first_rolls_back
            a_concurrent_copy_is_fresh_if_the_first_is_dropped
            a_swallowed_error_does_not_tear_the_transaction
            a_unique_violation_is_a_failure
            overlapping_batches_apply_each_message_once
            a_position_only_moves_forward
            positions_are_apart
            starts_are_counted_until_there_is_progress
            a_stale_owner_is_fenced
            a_commit_without_a_position_moves_none
            attempts_are_counted_and_survive
            an_attempt_is_settled_with_its_transaction
            a_stale_owner_records_no_attempt
            a_letter_is_kept_whole
            a_letter_of_a_rolled_back_transaction_is_not_kept
            a_message_without_id_has_one_letter
            parked_keys_are_found_in_their_partition
            letters_are_found_by_filter
            letters_come_in_pages
            a_dropped_letter_keeps_its_receipt
            a_taken_letter_is_gone_after_the_commit
            a_taken_letter_comes_back_after_a_rollback
            a_taken_letter_has_its_receipt
            a_letter_is_taken_by_one
            purge_removes_what_is_older_than_the_horizon
            purge_keeps_receipts_of_dead_letters
            the_horizon_stands_still_while_a_consumer_is_down
            purge_can_only_count
            purge_gets_through_many_receipts
            migrations_are_applied_once
            migrations_are_safe_from_several_processes
            a_check_tells_about_missing_tables
            the_status_shows_counters
        }
    };
    ($subject:ty: $($property:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() -> $crate::conformance::Verdict {
                $crate::conformance::$property::<$subject>().await
            }
        )+
    };
}
