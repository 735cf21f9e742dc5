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
mod audit;
mod batches;
mod claims;
mod delays;
mod deliveries;
mod edits;
mod events;
mod finding;
mod fingerprints;
mod fixture;
mod groups;
mod histories;
mod holds;
mod horizon;
mod leases;
mod letters;
mod moving;
mod operating;
mod outbox_admin;
mod pass;
mod pauses;
mod positions;
mod purging;
mod reading;
mod relaying;
mod retention;
mod schema;
mod stale;
mod subject;
mod sweeps;
mod taking;
mod transactions;

pub use attempts::*;
pub use audit::*;
pub use batches::*;
pub use claims::*;
pub use delays::*;
pub use deliveries::*;
pub use edits::*;
pub use events::*;
pub use finding::*;
pub use fingerprints::*;
pub use groups::*;
pub use histories::*;
pub use holds::*;
pub use horizon::*;
pub use leases::*;
pub use letters::*;
pub use moving::*;
pub use operating::*;
pub use outbox_admin::*;
pub use pauses::*;
pub use positions::*;
pub use purging::*;
pub use reading::*;
pub use relaying::ready;
pub use retention::*;
pub use schema::*;
pub use stale::*;
pub use subject::{Conn, Subject, SweepQuery, Verdict};
pub use sweeps::*;
pub use taking::*;
pub use transactions::*;

/// Writes one test per property of the suite, each on a database of its own.
///
/// `conformance!(receipts of Subject)` is a part of it, for a subject that has not everything: `receipts`, `positions`,
/// `schema`, `outbox` and `sweeps` together are the whole.
///
/// The calling crate needs `tokio` with its macros and the runtime with several threads.
#[macro_export]
macro_rules! conformance {
    ($subject:ty) => {
        $crate::conformance! { receipts of $subject }
        $crate::conformance! { positions of $subject }
        $crate::conformance! { schema of $subject }
        $crate::conformance! { outbox of $subject }
        $crate::conformance! { sweeps of $subject }
    };
    // Positions, attempts and pauses; and receipts under keys of our own, which a table that was adopted does not have.
    (positions of $subject:ty) => {
        $crate::conformance! { $subject:
            a_collision_of_receipts_is_told
            a_fingerprint_comes_back_for_a_copy
            a_receipt_without_a_fingerprint_has_none
            a_rolled_back_fingerprint_is_gone
            a_concurrent_copy_sees_the_fingerprint
            a_replay_keeps_the_fingerprint
            a_collision_has_no_fingerprint
            a_position_only_moves_forward
            positions_are_apart
            starts_are_counted_until_there_is_progress
            a_stale_owner_is_fenced
            a_commit_without_a_position_moves_none
            a_position_keeps_its_log_and_its_mark
            caught_up_only_moves_forward_and_never_ahead
            a_position_is_moved_by_an_operator
            a_position_remembers_how_far_it_was_settled
            a_moved_position_fences_its_owner
            a_position_is_made_or_revived_by_moving_it
            an_owner_that_knows_more_than_the_database_is_fenced
            an_owner_that_knows_of_more_commits_than_the_database_is_fenced
            attempts_are_counted_and_survive
            an_attempt_is_settled_with_its_transaction
            a_stale_owner_records_no_attempt
            attempts_are_forgotten_after_a_release
            attempts_below_the_position_are_forgotten
            a_withdrawn_attempt_does_not_count
            a_pause_is_kept_whole
            the_first_pause_counts
            consumers_are_paused_one_by_one
            a_consumer_is_paused_by_one
            an_action_is_written_down
            actions_are_found_by_filter
            old_actions_are_purged
            replays_are_counted
        }
    };
    // Tables that have to be made first.
    (schema of $subject:ty) => {
        $crate::conformance! { $subject:
            migrations_are_applied_once
            migrations_are_safe_from_several_processes
            a_check_tells_about_missing_tables
        }
    };
    // Events, leases, and what people do with the outbox.
    (outbox of $subject:ty) => {
        $crate::conformance! { $subject:
            events_appear_with_their_transaction_only
            an_event_comes_back_whole
            headers_come_back_whole
            the_cause_of_an_event_is_kept
            events_of_a_key_keep_their_order
            many_events_are_written_at_once
            a_late_commit_is_found
            places_are_not_used_again
            ready_names_topics_and_shards
            no_number_of_topics_hides_another
            ready_does_not_name_what_must_wait
            a_key_stays_in_its_shard
            a_batch_is_bounded_by_count
            a_batch_is_bounded_by_bytes
            nothing_is_lost_between_writers_and_a_relay
            events_are_seen_by_other_processes
            published_events_are_removed
            published_events_are_kept_and_purged
            purge_gets_through_many_published_events
            a_parked_event_holds_back_nobody
            a_held_event_can_be_parked
            a_parked_event_can_be_retried
            an_operator_parks_what_waits
            what_an_operator_has_parked_is_published_if_it_was_under_way
            events_can_be_dropped
            deliveries_are_recorded_as_a_whole
            a_held_event_holds_back_its_key
            a_held_event_without_key_holds_back_nobody
            a_follower_does_not_overtake
            a_held_event_does_not_hold_back_earlier_ones
            a_held_event_comes_back_with_its_followers
            failures_are_counted
            a_held_event_can_be_retried_at_once
            a_key_goes_on_without_its_held_event
            a_random_history_keeps_the_order
            a_delayed_event_says_its_time
            a_delayed_event_holds_back_its_key
            delayed_events_keep_their_order
            a_delayed_event_behind_a_failed_one_keeps_its_time
            a_delayed_event_is_sent_early_only_on_demand
            a_key_goes_on_without_its_delayed_event
            a_delayed_event_is_as_old_as_its_time
            an_expired_event_is_parked
            a_relay_alone_owns_all_shards
            leases_are_renewed
            an_owned_shard_is_not_taken
            a_released_shard_is_free_at_once
            a_relay_that_leaves_does_not_count
            an_expired_lease_is_taken
            relays_end_with_fair_shares
            concurrent_relays_never_share_a_shard
            the_status_shows_owners
            a_stale_relay_holds_nothing
            a_stale_relay_parks_nothing
            a_stale_relay_still_confirms
            a_relay_records_what_it_still_owns
            events_are_found_by_filter
            events_come_in_pages
            a_page_of_events_goes_on
            the_status_counts_events
            events_are_found_by_their_cause
        }
    };
    // Queries in the database's language whose rows become events.
    (sweeps of $subject:ty) => {
        $crate::conformance! { $subject:
            rows_of_a_sweep_become_events
            a_sweep_emits_a_row_once_in_its_window
            a_sweep_emits_a_row_again_after_its_window
            a_sweep_is_bounded
            a_sweep_emits_a_repeated_row_once
            sweeps_are_safe_at_the_same_time
            a_wrong_sweep_is_an_error_that_names_it
        }
    };
    // What has to do with receipts, wherever they are kept: also in a table that was adopted.
    (receipts of $subject:ty) => {
        $crate::conformance! { $subject:
            a_receipt_is_fresh_once
            a_rolled_back_receipt_is_fresh_again
            consumers_and_tenants_are_apart
            odd_ids_are_told_apart
            a_large_batch_is_claimed_whole
            a_batch_without_ids_has_a_transaction
            a_bare_claim_joins_the_transaction
            a_bare_claim_outside_a_transaction_is_refused
            a_dropped_transaction_leaves_nothing
            an_aborted_task_leaves_nothing
            a_rolled_back_connection_is_used_again
            a_concurrent_copy_waits_and_is_a_duplicate
            a_concurrent_copy_is_fresh_if_the_first_rolls_back
            a_concurrent_copy_is_fresh_if_the_first_is_dropped
            a_swallowed_error_does_not_tear_the_transaction
            a_unique_violation_is_a_failure
            overlapping_batches_apply_each_message_once
            a_letter_is_kept_whole
            a_letter_of_a_rolled_back_transaction_is_not_kept
            a_message_without_id_has_one_letter
            letters_at_the_same_place_of_two_logs_are_two
            a_list_has_lengths_instead_of_payloads
            parked_keys_are_found_in_their_partition
            letters_are_found_by_filter
            letters_come_in_pages
            a_dropped_letter_keeps_its_receipt
            a_taken_letter_is_gone_after_the_commit
            a_taken_letter_comes_back_after_a_rollback
            a_taken_letter_has_its_receipt
            a_letter_is_taken_by_one
            a_replay_renews_the_receipt
            an_earlier_letter_of_the_key_is_found
            purge_removes_what_is_older_than_the_horizon
            purge_keeps_receipts_of_dead_letters
            purge_can_only_count
            purge_gets_through_many_receipts
            the_horizon_stands_still_while_a_consumer_is_down
            the_slowest_partition_holds_the_horizon
            copies_in_a_backlog_are_recognised_until_it_is_caught_up
            a_retired_partition_does_not_hold_the_horizon
            a_partition_never_caught_up_holds_the_horizon
            a_clock_that_is_ahead_purges_nothing_too_early
            a_purge_reports_its_progress
            a_stopped_purge_resumes
            a_purge_that_is_not_wanted_does_nothing
            a_second_purger_is_told_that_another_is_at_it
            a_purger_takes_over_from_one_that_is_gone
            a_purger_that_was_replaced_stops
            the_status_shows_counters
            letters_that_failed_alike_are_a_group
            groups_are_of_one_consumer
            groups_are_bounded
            letters_are_found_by_what_failed
            a_page_of_letters_goes_on
            letters_without_a_group_get_one
            an_edited_letter_keeps_what_arrived
            an_edit_of_what_has_changed_is_refused
            an_edited_letter_is_taken_as_it_is_now
            a_receipt_is_found_with_its_time
            a_message_is_found
            a_bulk_replay_tells_what_became_of_each
            a_bulk_replay_keeps_its_limit_and_its_rate
            a_bulk_replay_can_be_stopped
            two_bulk_replays_apply_each_letter_once
            a_bulk_replay_keeps_the_order_of_a_key
            a_mended_letter_is_replayed
            letters_are_dropped_with_a_reason
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
