//! The JSON API. One table of routes: the router and the description are both made from it.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use oncebox_core::store::StoredDeadLetter;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::action::Action;
use crate::backend::Trouble;
use crate::fields::Fields;
use crate::guard;
use crate::jobs::Job;
use crate::model::audit::{self, AuditList};
use crate::model::consumer::ConsumerDetail;
use crate::model::events::{self, EventList, OutboxDetail};
use crate::model::export::ExportLine;
use crate::model::find::{self, FoundMessage};
use crate::model::health::Health;
use crate::model::jobs::JobReport;
use crate::model::letters::{self, GroupList, Letter, LetterList};
use crate::model::overview::Overview;
use crate::model::retention::RetentionList;
use crate::openapi;
use crate::pages::Ask;
use crate::site::{Payloads, Site};

/// Where it lives.
const ROOT: &str = "/api/";

/// Where actions are asked for.
pub(crate) const ACTION_PATH: &str = "/api/v1/actions/{name}";

/// A question.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) help: &'static str,
    /// What may stand in the query, and what it means.
    pub(crate) query: &'static [(&'static str, &'static str)],
    pub(crate) answer: fn(&mut SchemaGenerator) -> Schema,
    /// Whether the answer is a document, or one on each line.
    pub(crate) content_type: &'static str,
    handler: fn() -> MethodRouter<Arc<Site>>,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const LETTER_QUERY: &[(&str, &str)] = &[
    ("consumer", "only of this consumer"),
    ("topic", "only of this topic"),
    ("tenant", "only of this tenant"),
    ("id", "only with this message id"),
    ("key", "only with this key"),
    ("error", "only with this text in their error"),
    ("group", "only of this group"),
    ("since", "only given up at this time or later"),
    ("until", "only given up before this time"),
    ("before", "the next page: what `next` said"),
    ("limit", "at most this many, up to 500"),
];

const EVENT_QUERY: &[(&str, &str)] = &[
    ("state", "parked (unless another is named), held, delayed, pending or published"),
    ("topic", "only of this topic"),
    ("key", "only with this key"),
    ("after", "the next page: what `next` said"),
    ("payload", "show: also the keys, unless the configuration hides them"),
];

const EXPORT_QUERY: &[(&str, &str)] = &[
    ("consumer", "only of this consumer"),
    ("topic", "only of this topic"),
    ("tenant", "only of this tenant"),
    ("id", "only with this message id"),
    ("key", "only with this key"),
    ("error", "only with this text in their error"),
    ("group", "only of this group"),
    ("since", "only given up at this time or later"),
    ("until", "only given up before this time"),
    ("before", "where the last one was cut: what its `next` said"),
    ("limit", "at most this many, 10,000 unless it is said, up to 100,000"),
    ("payload", "show: also key, payload and headers, unless the configuration hides them"),
];

const JSON: &str = "application/json";

/// All questions.
pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/overview",
        help: "Whether every message changes the database once: the verdict, consumers, the outbox.",
        query: &[],
        answer: schema::<Overview>,
        content_type: JSON,
        handler: || get(overview),
    },
    Route {
        path: "/api/v1/consumers/{consumer}",
        help: "A consumer with its partitions.",
        query: &[],
        answer: schema::<ConsumerDetail>,
        content_type: JSON,
        handler: || get(consumer),
    },
    Route {
        path: "/api/v1/dead-letters",
        help: "Dead letters, the newest first, without what they hold.",
        query: LETTER_QUERY,
        answer: schema::<LetterList>,
        content_type: JSON,
        handler: || get(dead_letters),
    },
    Route {
        path: "/api/v1/dead-letters/export",
        help: "Dead letters, the newest first, as JSON lines; where there may be more, the last line says so.",
        query: EXPORT_QUERY,
        answer: schema::<ExportLine>,
        content_type: "application/jsonl",
        handler: || get(export_letters),
    },
    Route {
        path: "/api/v1/find",
        help: "One message: its receipts, its dead letters, the events that it caused, its traces.",
        query: &[("id", "the message id"), ("tenant", "its tenant"), ("consumer", "ask only this consumer")],
        answer: schema::<FoundMessage>,
        content_type: JSON,
        handler: || get(find),
    },
    Route {
        path: "/api/v1/dead-groups",
        help: "Dead letters of one consumer whose errors read alike, together.",
        query: &[("consumer", "only of this consumer")],
        answer: schema::<GroupList>,
        content_type: JSON,
        handler: || get(dead_groups),
    },
    Route {
        path: "/api/v1/audit",
        help: "Who did what, the newest first.",
        query: &[
            ("who", "only by this one"),
            ("action", "only this action"),
            ("consumer", "only to this consumer"),
            ("before", "the next page: what `next` said"),
        ],
        answer: schema::<AuditList>,
        content_type: JSON,
        handler: || get(audit_entries),
    },
    Route {
        path: "/api/v1/dead-letters/{number}",
        help: "A dead letter.",
        query: &[("payload", "show: also key, payload and headers, unless the configuration hides them")],
        answer: schema::<Letter>,
        content_type: JSON,
        handler: || get(dead_letter),
    },
    Route {
        path: "/api/v1/outbox",
        help: "The outbox in numbers, and who owns its shards.",
        query: &[],
        answer: schema::<OutboxDetail>,
        content_type: JSON,
        handler: || get(outbox),
    },
    Route {
        path: "/api/v1/outbox/events",
        help: "Events of the outbox in one state, without their payloads.",
        query: EVENT_QUERY,
        answer: schema::<EventList>,
        content_type: JSON,
        handler: || get(outbox_events),
    },
    Route {
        path: "/api/v1/retention",
        help: "How long receipts are kept, and whether that covers the topics.",
        query: &[],
        answer: schema::<RetentionList>,
        content_type: JSON,
        handler: || get(retention),
    },
    Route {
        path: "/api/v1/health",
        help: "What was checked, and the loops of this process.",
        query: &[],
        answer: schema::<Health>,
        content_type: JSON,
        handler: || get(health),
    },
    Route {
        path: "/api/v1/jobs/{number}",
        help: "What was asked for in this process, and what became of it.",
        query: &[],
        answer: schema::<JobReport>,
        content_type: JSON,
        handler: || get(job),
    },
];

/// Stopping what goes on.
pub(crate) const CANCEL_PATH: &str = "/api/v1/jobs/{number}/cancel";
/// The description.
pub(crate) const OPENAPI_PATH: &str = "/api/v1/openapi.json";

pub(crate) fn routes() -> Router<Arc<Site>> {
    let router =
        ROUTES.iter().fold(Router::new(), |router, route| router.route(route.path, (route.handler)()));
    router
        .route(ACTION_PATH, post(act))
        .route(CANCEL_PATH, post(cancel))
        .route(OPENAPI_PATH, get(|| async { json(StatusCode::OK, &openapi::document()) }))
        .route("/api/{*rest}", get(nothing).post(nothing))
}

/// Whether a path is one of the API.
pub(crate) fn is_api(path: &str) -> bool {
    path.starts_with(ROOT)
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// What an answer says that is none.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// What went wrong, for people.
    error: String,
}

/// An answer that is none.
pub(crate) fn problem(status: StatusCode, text: &str) -> Response {
    let body = serde_json::to_vec(&Problem { error: text.to_owned() }).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        problem(guard::status(&self.0), &self.0.to_string())
    }
}

/// A trouble as the API says it.
struct Refused(Trouble);

impl From<Trouble> for Refused {
    fn from(trouble: Trouble) -> Self {
        Self(trouble)
    }
}

type Answer = Result<Response, Refused>;

fn ok(value: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, value))
}

async fn nothing() -> Response {
    problem(StatusCode::NOT_FOUND, &format!("there is no such thing; what there is stands in {OPENAPI_PATH}"))
}

async fn overview(State(site): State<Arc<Site>>) -> Answer {
    let look = site.look().await?;
    ok(&Overview::of(&look, &site.history()))
}

async fn consumer(State(site): State<Arc<Site>>, Path(name): Path<String>) -> Answer {
    let look = site.look().await?;
    let detail = ConsumerDetail::of(&look, &site.history(), &name);
    ok(&detail.ok_or_else(|| Trouble::Missing(format!("nobody knows a consumer {name}")))?)
}

async fn dead_letters(ask: Ask) -> Answer {
    ok(&ask.letters().await?)
}

async fn export_letters(ask: Ask) -> Answer {
    Ok(ask.export()?)
}

async fn find(ask: Ask) -> Answer {
    let found = ask.find().await?;
    ok(&found.ok_or_else(|| Trouble::Refused("`id` is missing: which message?".to_owned()))?)
}

async fn dead_groups(ask: Ask) -> Answer {
    ok(&ask.groups().await?)
}

async fn audit_entries(ask: Ask) -> Answer {
    ok(&ask.audit().await?)
}

async fn dead_letter(ask: Ask, Path(number): Path<i64>) -> Answer {
    let wanted = ask.fields.maybe("payload").as_deref() == Some("show");
    ok(&ask.letter(number, wanted).await?)
}

async fn outbox(State(site): State<Arc<Site>>) -> Answer {
    let look = site.look().await?;
    ok(&OutboxDetail::of(&look, &site.history()))
}

async fn outbox_events(ask: Ask) -> Answer {
    ok(&ask.events().await?)
}

async fn retention(State(site): State<Arc<Site>>) -> Answer {
    ok(&RetentionList::of(&*site.look().await?))
}

async fn health(State(site): State<Arc<Site>>) -> Answer {
    let findings = site.read(|backend| backend.checks()).await?;
    ok(&Health::of(&*site.look().await?, findings))
}

async fn job(ask: Ask, Path(number): Path<u64>) -> Answer {
    ok(&ask.job(number)?)
}

async fn act(ask: Ask, Path(name): Path<String>, body: Bytes) -> Answer {
    let fields = if body.is_empty() { Ok(Fields::default()) } else { Fields::of_json(&body) };
    let report = ask.act(&name, fields).await?;
    Ok(json(StatusCode::OK, &report))
}

async fn cancel(ask: Ask, Path(number): Path<u64>) -> Answer {
    ask.cancel(number)?;
    ok(&ask.job(number)?)
}

impl Ask {
    pub(crate) async fn letters(&self) -> Result<LetterList, Trouble> {
        let mut filter = letters::filter(&self.fields).map_err(Trouble::Refused)?;
        let limit = filter.limit;
        filter.limit += 1;
        Ok(LetterList::of(self.site.read(|backend| backend.dead_letters(filter)).await?, limit))
    }

    pub(crate) async fn groups(&self) -> Result<GroupList, Trouble> {
        let consumer = self.fields.maybe("consumer");
        let found = self.site.read(|backend| backend.dead_groups(consumer)).await?;
        Ok(GroupList::of(found, &*self.site.look().await?))
    }

    /// `None` if nobody asks for a message yet.
    pub(crate) async fn find(&self) -> Result<Option<FoundMessage>, Trouble> {
        let Some(sought) = find::sought(&self.fields).map_err(Trouble::Refused)? else { return Ok(None) };
        let asked = sought.clone();
        let located = self.site.read(|backend| backend.find(asked)).await?;
        Ok(Some(FoundMessage::of(&sought, located)))
    }

    pub(crate) async fn audit(&self) -> Result<AuditList, Trouble> {
        let mut filter = audit::filter(&self.fields).map_err(Trouble::Refused)?;
        let limit = filter.limit;
        filter.limit += 1;
        Ok(AuditList::of(self.site.read(|backend| backend.audit(filter)).await?, limit))
    }

    pub(crate) async fn letter(&self, number: i64, with_content: bool) -> Result<Letter, Trouble> {
        Ok(Letter::of(&self.stored_letter(number).await?, with_content && self.may_show()))
    }

    pub(crate) async fn stored_letter(&self, number: i64) -> Result<StoredDeadLetter, Trouble> {
        let found = self.site.read(|backend| backend.dead_letter(number)).await?;
        found.ok_or_else(|| {
            Trouble::Missing(format!(
                "there is no dead letter {number}: it was replayed or dropped, or never was"
            ))
        })
    }

    /// Whether what messages hold may be shown at all.
    pub(crate) fn may_show(&self) -> bool {
        self.site.settings.payloads == Payloads::Mask
    }

    pub(crate) async fn events(&self) -> Result<EventList, Trouble> {
        let mut filter = events::filter(&self.fields).map_err(Trouble::Refused)?;
        let limit = filter.limit;
        filter.limit += 1;
        let with_keys = self.fields.maybe("payload").as_deref() == Some("show") && self.may_show();
        Ok(EventList::of(self.site.read(|backend| backend.events(filter)).await?, limit, with_keys))
    }

    pub(crate) fn job(&self, number: u64) -> Result<JobReport, Trouble> {
        Ok(JobReport::of(&self.asked_for(number)?))
    }

    pub(crate) fn asked_for(&self, number: u64) -> Result<Job, Trouble> {
        self.site.jobs.get(number).ok_or_else(|| Self::forgotten(number))
    }

    pub(crate) fn cancel(&self, number: u64) -> Result<(), Trouble> {
        self.asked_for(number)?.stop.cancel();
        Ok(())
    }

    fn forgotten(number: u64) -> Trouble {
        Trouble::Missing(format!(
            "this process knows nothing of {number}: it keeps the last ones until it ends"
        ))
    }

    /// Does what is asked for. Whoever may not act has not come this far.
    pub(crate) async fn act(&self, name: &str, fields: Result<Fields, String>) -> Result<JobReport, Trouble> {
        let action = Action::read(name, &fields.map_err(Trouble::Refused)?)
            .ok_or_else(|| Trouble::Missing(format!("there is no action {name}")))?
            .map_err(Trouble::Refused)?;
        // Nobody changes what he may not see.
        if matches!(action, Action::EditDead(_)) && !self.may_show() {
            return Err(Trouble::Refused(HIDDEN.to_owned()));
        }
        let backend = self.site.backend()?;
        let begin = |action, task| backend.act(action, task);
        let job = self.site.jobs.start(action, self.caller.name.clone(), PATIENCE, begin).await?;
        self.site.forget_look().await;
        Ok(JobReport::of(&job))
    }
}

/// Why a letter cannot be changed here.
pub(crate) const HIDDEN: &str = "what messages hold is not shown here (payloads = \"hide\"), so it cannot be changed here: use `oncebox dead edit`";

/// So long somebody waits for the end of an action; then he gets its number.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);
