//! The dashboard of oncebox: pages and a JSON API over whatever a [`Backend`] can read and do.
//!
//! It knows neither a database nor a broker. The pages are made on the server and work without JavaScript; one small module
//! keeps them up to date. Whoever serves it gives it a [`Backend`], says who may do what ([`Access`]), and mounts the
//! [`Dashboard::router`]:
//!
//! ```
//! use oncebox_dashboard::{Access, Dashboard, Payloads, Settings};
//!
//! let settings = Settings { access: Access::local(), payloads: Payloads::Mask, ..Settings::default() };
//! let dashboard = Dashboard::new(settings);
//! // … `dashboard.set_backend(backend)` as soon as there is a database …
//! let router = dashboard.router();
//! # drop(router);
//! ```

mod access;
mod action;
mod api;
mod assets;
mod backend;
mod chart;
mod diff;
mod edit;
mod export;
mod fields;
mod guard;
mod history;
mod html;
mod jobs;
mod model;
mod openapi;
mod pages;
mod site;
mod text;

pub use access::{Access, Proxy, Role};
pub use action::{Action, Outcome, PositionMove, Replay};
pub use backend::{
    Answering, Backend, Configured, Located, Look, Place, Seen, Sought, Task, TopicKeeps, Trouble,
};
pub use edit::Edit;
pub use jobs::Progress;
pub use openapi::document as openapi;
pub use site::{Dashboard, Payloads, Settings};
