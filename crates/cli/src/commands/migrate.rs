//! `oncebox migrate`: our tables, versioned.

mod adopt;

use std::path::Path;

use oncebox_core::store::Migration;
use serde_json::json;

use crate::args::{MigrateAction, Output};
use crate::exit::{Answer, CommandResult};
use crate::load;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, with_store};

pub(crate) async fn run(file: &Path, action: Option<MigrateAction>) -> CommandResult {
    let config = load::config(file)?;
    match action.unwrap_or(MigrateAction::Up) {
        MigrateAction::Adopt(args) => adopt::run(&config, args).await,
        action => with_store(&config.store, Migrate { action, config: &config.store }).await,
    }
}

struct Migrate<'a> {
    action: MigrateAction,
    config: &'a oncebox_config::StoreConfig,
}

impl WithStore for Migrate<'_> {
    type Output = CommandResult;

    const MAKES_FILE: bool = true;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        match self.action {
            MigrateAction::Up => {
                let applied = store.migrate().await?;
                store.arrange(self.config).await?;
                for migration in &applied {
                    output::note(&format!("applied {}: {}", migration.version, migration.name));
                }
                if applied.is_empty() {
                    output::note("nothing to do: the schema is up to date");
                }
                Ok(Answer::Yes)
            }
            MigrateAction::Status { output } => show(&store.migrations().await?, output.output),
            // Has a way of its own.
            MigrateAction::Adopt(_) => Ok(Answer::Yes),
            MigrateAction::Sql => {
                for migration in store.migrations().await? {
                    if let Some(comment) = S::COMMENT {
                        output::line(&format!("{comment} {}: {}", migration.version, migration.name))?;
                    }
                    output::line(migration.script.trim())?;
                    output::line("")?;
                }
                Ok(Answer::Yes)
            }
        }
    }
}

/// A negative answer if something is missing.
fn show(migrations: &[Migration], output: Output) -> CommandResult {
    match output {
        Output::Json => {
            let rows: Vec<_> = migrations
                .iter()
                .map(|m| json!({"version": m.version, "name": m.name, "applied": m.applied}))
                .collect();
            output::json(&rows)?;
        }
        Output::Table => {
            let rows = migrations.iter().map(|m| {
                [m.version.to_string(), m.name.to_owned(), if m.applied { "yes" } else { "no" }.to_owned()]
            });
            output::line(&output::table(["version", "name", "applied"], rows).to_string())?;
        }
    }
    Ok(if migrations.iter().all(|m| m.applied) { Answer::Yes } else { Answer::No })
}
