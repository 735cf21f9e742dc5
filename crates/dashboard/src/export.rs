//! Dead letters as JSON lines, page by page: no more than one page is in memory, and no connection is held in between.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use oncebox_core::store::DeadFilter;

use crate::backend::Trouble;
use crate::model::export::{self, ExportLine};
use crate::model::letters;
use crate::pages::Ask;
use crate::site::Site;

/// So many letters are read together.
const PAGE: u64 = 100;

struct Walk {
    site: Arc<Site>,
    filter: DeadFilter,
    left: u64,
    with_content: bool,
}

impl Ask {
    /// The letters that the filters mean, the newest first.
    pub(crate) fn export(&self) -> Result<Response, Trouble> {
        let filter = letters::filter(&self.fields).map_err(Trouble::Refused)?;
        let left = export::limit(&self.fields).map_err(Trouble::Refused)?;
        // Who has none yet is told so with a status.
        self.site.backend()?;
        let wanted = self.fields.maybe("payload").as_deref() == Some("show");
        let with_content = wanted && self.may_show();
        let walk = Walk { site: Arc::clone(&self.site), filter, left, with_content };
        let lines = stream::unfold(Some(walk), |walk| async {
            let (lines, walk) = walk?.page().await;
            Some((Ok::<_, std::convert::Infallible>(lines), walk))
        });
        let headers = [
            (header::CONTENT_TYPE, "application/jsonl"),
            (header::CONTENT_DISPOSITION, "attachment; filename=\"dead-letters.jsonl\""),
        ];
        Ok((headers, Body::from_stream(lines)).into_response())
    }
}

impl Walk {
    /// The next lines, and who goes on.
    async fn page(mut self) -> (String, Option<Self>) {
        let rows = u32::try_from(self.left.min(PAGE)).unwrap_or(u32::MAX);
        let filter = DeadFilter { limit: rows, ..self.filter.clone() };
        let page = match self.site.read(|backend| backend.whole_letters(filter)).await {
            Ok(page) => page,
            Err(trouble) => {
                return (ExportLine::cut(trouble.to_string(), self.filter.before).written(), None);
            }
        };
        let mut lines: String = page
            .letters
            .iter()
            .map(|stored| ExportLine::letter(stored, self.with_content).written())
            .collect();
        self.left = self.left.saturating_sub(page.letters.len() as u64);
        self.filter.before = page.next;
        match page.next {
            Some(_) if self.left > 0 => return (lines, Some(self)),
            Some(next) => {
                lines.push_str(
                    &ExportLine::cut("there may be more: ask again with `before`", Some(next)).written(),
                );
            }
            None => {}
        }
        (lines, None)
    }
}
