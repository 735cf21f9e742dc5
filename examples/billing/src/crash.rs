//! Crashes on purpose.

/// Between which two steps the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The invoice and the event are written, the transaction is not committed.
    BeforeCommit,
    /// The transaction is committed, the relay has not read the event.
    AfterCommit,
    /// The relay has read the event, the mail is not sent.
    BeforeMail,
    /// The mail is sent, the event still waits in the outbox.
    AfterMail,
}

/// All places, in the order of the steps.
pub(crate) const PLACES: [Place; 4] =
    [Place::BeforeCommit, Place::AfterCommit, Place::BeforeMail, Place::AfterMail];

/// The variable that names the place.
pub(crate) const VARIABLE: &str = "BILLING_CRASH_AT";

/// Whether this process is to die at that place.
pub(crate) fn is_wanted(place: Place) -> bool {
    std::env::var(VARIABLE).is_ok_and(|wanted| wanted == format!("{place:?}"))
}

/// Ends the process if this is the place: no destructor runs, nothing is flushed, as with `kill -9`.
pub(crate) fn at(place: Place) {
    if is_wanted(place) {
        std::process::abort();
    }
}
