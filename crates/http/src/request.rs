//! The way of one request: verified, read, made into messages, handed over, and answered after the commit.

use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use oncebox_core::error::{Error, describe};
use oncebox_core::inbox::Identity;
use oncebox_core::message::{Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::body::{self, Memory};
use crate::door::{Accept, Door, Entry, Handed, Way};
use crate::echo::echo;
use crate::inbox::HttpInbox;
use crate::mapping::{Arrival, Malformed, Mapping};
use crate::problem::{EventProblem, Problem};
use crate::verdict::{Answers, Became, respond};
use crate::verify::NotVerified;

/// What the requests of one inbox share.
#[derive(Debug)]
pub(crate) struct Entrance {
    inbox: Arc<HttpInbox>,
    mapping: Mapping,
    door: Arc<Door>,
    places: Semaphore,
    memory: Memory,
}

/// Receives a `POST`.
pub(crate) async fn receive(
    State(entrance): State<Arc<Entrance>>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Response {
    let Ok(parameters) = parameters else {
        return bad("The path is malformed", "a parameter of the path is not UTF-8").into_response();
    };
    let parameters: Vec<(&str, &str)> = parameters.iter().collect();
    entrance.take(&parameters, request).await.unwrap_or_else(IntoResponse::into_response)
}

impl Entrance {
    pub(crate) fn new(inbox: Arc<HttpInbox>, door: Arc<Door>) -> Self {
        let mapping = Mapping {
            topic: inbox.path.as_str().into(),
            key: inbox.key.clone(),
            proofs: inbox.access.proof_headers(),
            max_batch: inbox.limits.batch_events,
        };
        let places = Semaphore::new(inbox.limits.requests.min(Semaphore::MAX_PERMITS));
        let memory = Memory::of(inbox.limits.bytes);
        Self { inbox, mapping, door, places, memory }
    }

    async fn take(&self, parameters: &[(&str, &str)], request: Request) -> Result<Response, Problem> {
        let HttpInbox { access, limits, clock, .. } = &*self.inbox;
        let _place = self.places.try_acquire().map_err(|_| self.busy("too many requests are under way"))?;
        let (head, body) = request.into_parts();
        self.check_headers(&head.headers)?;
        let claim =
            access.claim(parameters, &head.headers, clock.now_s()).map_err(|e| self.not_verified(&e))?;
        let body = body::read(&head.headers, body, limits, &self.memory).await?;
        if let Some(claim) = claim {
            claim.check(&body.bytes).map_err(|e| self.not_verified(&e))?;
        }
        let arrival =
            Arrival { headers: &head.headers, parameters, body: body.bytes.clone(), at_ms: clock.now_ms() };
        self.apply(arrival).await
    }

    /// The request is who it says. `body` is held until the end, so that its memory counts as long.
    async fn apply(&self, arrival: Arrival<'_>) -> Result<Response, Problem> {
        let HttpInbox { access, limits, reply, .. } = &*self.inbox;
        let verifier = access.verifier(arrival.parameters).map_err(|e| self.not_verified(&e))?;
        if let Some(answer) = verifier.filter(|by| by.asks_for_an_echo()).and_then(|_| echo(&arrival.body)) {
            return Ok(answer);
        }
        let run = match self.door.entry() {
            Entry::Open(run) => run,
            Entry::Paused => return Err(self.busy("this inbox is paused")),
            Entry::Closed => return Err(self.busy("this inbox does not run at the moment")),
        };
        let records = self.mapping.records(arrival).map_err(|e| malformed(&e))?;
        let sent = records.len();
        let wanted = records.into_iter().enumerate().filter(|(_, record)| run.intake.wants(record));
        // Where each of them stands in the request.
        let (places, records): (Vec<usize>, Vec<Record>) = wanted.unzip();
        if records.is_empty() && sent > 0 {
            return Ok(reply.filtered());
        }
        let messages = identify(&run.intake.settings().identity, &places, sent, records)?;
        let counter = match &run.way {
            Way::Apply(counter) => counter,
            Way::Accept(queue) => return self.accept(&**queue, messages).await,
        };
        let handed = counter.hand_over(&messages).map_err(|_| self.busy("too many messages wait"))?;
        // Who waits must not keep the stream alive: if that ends without a word, everybody who waits is told so.
        drop(run);
        let became = self.wait(handed).await;
        for (message, trouble) in messages.iter().zip(&became).filter_map(|(m, b)| Some((m, b.trouble()?))) {
            warn!(path = %self.inbox.path, id = %message.id(), reason = trouble, "a request was not applied");
        }
        let of = Answers { messages: &messages, became: &became, places: &places, sent };
        Ok(respond(of, reply, limits.retry_after))
    }

    /// Stores the messages. They are applied later, whatever becomes of their sender.
    async fn accept(&self, queue: &dyn Accept, messages: Vec<Message>) -> Result<Response, Problem> {
        let HttpInbox { path, limits, reply, .. } = &*self.inbox;
        let records = messages.iter().map(|message| message.record().clone()).collect();
        let (id, events) = (messages.first().map(Message::id), messages.len());
        match timeout_at(Instant::now() + limits.answer_within, queue.accept(records)).await {
            Ok(Ok(())) => Ok(reply.accepted()),
            Ok(Err(Error::Event(error))) => {
                let title = "The message is too large";
                Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, title, error.to_string()))
            }
            Ok(Err(error)) => {
                warn!(%path, ?id, events, reason = describe(&error), "a request was not accepted");
                Err(self.busy("it cannot be stored at the moment"))
            }
            Err(_) => Err(self.busy("it is not stored yet")),
        }
    }

    /// What became of each message, as far as it is known in time.
    async fn wait(&self, handed: Vec<Handed>) -> Vec<Became> {
        let limits = &self.inbox.limits;
        let now = Instant::now();
        let mut became = Vec::with_capacity(handed.len());
        for Handed { is_copy, answer } in handed {
            let (within, late) = if is_copy {
                (limits.copy_within, Became::LateCopy)
            } else {
                (limits.answer_within, Became::Late)
            };
            became.push(match timeout_at(now + within, answer).await {
                Ok(Ok(answer)) => Became::Answered(answer),
                Ok(Err(_)) => Became::Unanswered,
                Err(_) => late,
            });
        }
        became
    }

    fn check_headers(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let limits = &self.inbox.limits;
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if headers.len() <= limits.header_count && bytes <= limits.header_bytes {
            return Ok(());
        }
        let detail = format!(
            "there are {} headers with {bytes} bytes; the limits here are {} and {}",
            headers.len(),
            limits.header_count,
            limits.header_bytes
        );
        let title = "The headers are too large";
        Err(Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, title, detail).close())
    }

    fn not_verified(&self, why: &NotVerified) -> Problem {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "The request is not verified", why.to_string());
        problem.challenge(self.inbox.access.challenge())
    }

    fn busy(&self, why: &str) -> Problem {
        let detail = format!("{why}; send it again later");
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Not now", detail);
        problem.retry_after(self.inbox.limits.retry_after)
    }
}

fn bad(title: &'static str, detail: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, title, detail)
}

fn malformed(why: &Malformed) -> Problem {
    let (status, title) = match why {
        Malformed::KeyRepeated | Malformed::KeyNotAString => (StatusCode::BAD_REQUEST, "The id is malformed"),
        Malformed::BatchNotJson(_) => (StatusCode::BAD_REQUEST, "The batch is malformed"),
        Malformed::BatchTooLong(_) => (StatusCode::PAYLOAD_TOO_LARGE, "The batch is too large"),
        Malformed::BatchFormat => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The batch has another format"),
    };
    Problem::new(status, title, why.to_string())
}

/// Every message has its id before anything is handed over.
fn identify(
    identity: &Identity,
    places: &[usize],
    sent: usize,
    records: Vec<Record>,
) -> Result<Vec<Message>, Problem> {
    let one = sent == 1;
    let mut messages = Vec::with_capacity(records.len());
    for (&index, record) in places.iter().zip(records) {
        let at = |problem: Problem, detail: String| {
            if one { problem } else { problem.events(vec![EventProblem { index, detail }]) }
        };
        if let Some(reason) = identity.limits.exceeded_by(&record) {
            let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "The message is too large", &reason);
            return Err(at(problem, reason));
        }
        match identity.identify(record) {
            Ok(message) => messages.push(message),
            Err(unfit) => return Err(at(bad("The message has no id", &unfit.reason), unfit.reason)),
        }
    }
    refuse_ids_of_two(places, &messages)?;
    Ok(messages)
}

/// Two events of a batch with one id are copies. If they differ, the id is not where the inbox looks for it, and all but the
/// first would be lost.
fn refuse_ids_of_two(places: &[usize], messages: &[Message]) -> Result<(), Problem> {
    type Named<'m> = ((&'m Tenant, &'m MessageId), Option<&'m Bytes>, usize);
    let mut named: Vec<Named<'_>> = places
        .iter()
        .zip(messages)
        .map(|(&index, message)| ((message.tenant(), message.id()), message.record().payload.as_ref(), index))
        .collect();
    named.sort_unstable();
    let two = named.windows(2).find(|two| two[0].0 == two[1].0 && two[0].1 != two[1].1);
    let Some([(_, _, one), (_, _, other)]) = two else { return Ok(()) };
    let detail = format!("the events {one} and {other} of the batch have the same id and are not the same");
    Err(bad("Two messages have the same id", &detail))
}
