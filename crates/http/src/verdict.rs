//! What became of the messages of a request, and what its sender is told.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use oncebox_core::message::Message;
use oncebox_core::names::MessageId;
use oncebox_core::source::{Answer, GivenBack, Why};

use crate::problem::{EventProblem, Problem, shown};
use crate::reply::Reply;

/// What became of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Became {
    Answered(Answer),
    /// There is no answer in time.
    Late,
    /// There is no answer in time, and it is the copy of one that is under way.
    LateCopy,
    /// There will be no answer.
    Unanswered,
}

/// What the sender is told about one message, the worse the greater: if anything of a request is worth another try, the sender
/// is told to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Replayed,
    Applied,
    Parked,
    Differs,
    Rejected,
    Failed,
    UnderWay,
    Unavailable,
}

impl Became {
    fn verdict(&self) -> Verdict {
        match self {
            Self::Answered(Answer::Applied | Answer::Filtered) => Verdict::Applied,
            Self::Answered(Answer::Duplicate) => Verdict::Replayed,
            Self::Answered(Answer::Parked) => Verdict::Parked,
            Self::Answered(Answer::Differs) => Verdict::Differs,
            Self::Answered(Answer::GivenBack(GivenBack { why: Why::Rejected, .. })) => Verdict::Rejected,
            Self::Answered(Answer::GivenBack(GivenBack { why: Why::Failed, .. })) => Verdict::Failed,
            Self::LateCopy => Verdict::UnderWay,
            Self::Answered(_) | Self::Late | Self::Unanswered => Verdict::Unavailable,
        }
    }

    /// For the sender. What a handler says when it rejects is meant for it; other errors may tell of the database, and are for
    /// the log.
    fn detail(&self, id: &MessageId) -> String {
        match self {
            Self::Answered(Answer::Differs) => shown(&format!(
                "the id {id} was used for a request with another body, so this one was not applied. Give each request an id of its \
                 own, and send the same body when one is sent again"
            )),
            Self::Answered(Answer::GivenBack(GivenBack { why: Why::Rejected, reason, .. })) => shown(reason),
            Self::Answered(Answer::GivenBack(GivenBack { why: Why::Failed, .. })) => {
                "it could not be applied, and nothing of it stays behind: it may be sent again".to_owned()
            }
            Self::Answered(Answer::GivenBack(GivenBack { why: Why::Closing, .. })) | Self::Unanswered => {
                "this inbox has stopped meanwhile; send it again".to_owned()
            }
            Self::Answered(Answer::GivenBack(_)) => {
                "it cannot be applied at the moment, and nothing of it stays behind; send it again".to_owned()
            }
            Self::LateCopy => {
                "the same message is still under way; send it again to learn what became of it".to_owned()
            }
            Self::Late => "it is still under way; send it again to learn what became of it".to_owned(),
            Self::Answered(_) => String::new(),
        }
    }

    /// Why, for the log of whoever runs this, if there is something to look at.
    pub(crate) fn trouble(&self) -> Option<&str> {
        match self {
            Self::Answered(Answer::GivenBack(GivenBack {
                why: Why::Failed | Why::Unavailable,
                reason,
                ..
            })) => Some(reason),
            _ => None,
        }
    }
}

/// What became of the messages of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answers<'a> {
    pub(crate) messages: &'a [Message],
    pub(crate) became: &'a [Became],
    /// Where each stands in the request: the inbox may not have wanted all of them.
    pub(crate) places: &'a [usize],
    /// How many the request had.
    pub(crate) sent: usize,
}

/// One answer for all messages of a request. Those that were applied stay applied: when the request comes again, they are
/// copies.
pub(crate) fn respond(answers: Answers<'_>, reply: &Reply, retry_after: Duration) -> Response {
    let each = answers.messages.iter().zip(answers.became);
    let Some((message, worst)) = each.max_by_key(|(_, one)| one.verdict()) else {
        return reply.response(false);
    };
    let (status, title) = match worst.verdict() {
        Verdict::Replayed => return reply.response(true),
        Verdict::Applied => return reply.response(false),
        Verdict::Parked => return StatusCode::ACCEPTED.into_response(),
        Verdict::Differs => (StatusCode::UNPROCESSABLE_ENTITY, "The id was used for another request"),
        Verdict::Rejected => (StatusCode::UNPROCESSABLE_ENTITY, "The message is rejected"),
        Verdict::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "The message failed"),
        Verdict::UnderWay => (StatusCode::CONFLICT, "The same message is under way"),
        Verdict::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "Not now"),
    };
    let problem = Problem::new(status, title, worst.detail(message.id()));
    let problem = if answers.sent == 1 { problem } else { problem.events(events(answers)) };
    match worst.verdict() {
        Verdict::UnderWay | Verdict::Unavailable => problem.retry_after(retry_after).into_response(),
        _ => problem.into_response(),
    }
}

/// The events of a batch that were not applied.
fn events(Answers { messages, became, places, .. }: Answers<'_>) -> Vec<EventProblem> {
    let each = places.iter().zip(messages.iter().zip(became));
    each.filter(|(_, (_, one))| one.verdict() >= Verdict::Differs)
        .map(|(&index, (message, one))| EventProblem { index, detail: one.detail(message.id()) })
        .collect()
}
