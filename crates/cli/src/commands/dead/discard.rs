//! `oncebox dead drop`.

use oncebox_core::operate::Operator;
use tokio_util::sync::CancellationToken;

use super::{chosen, matching, show};
use crate::args::DeadChange;
use crate::commands::selection::report_changed;
use crate::exit::CommandResult;
use crate::interrupt::Interrupt;
use crate::stores::ConfiguredStore;

pub(super) async fn discard<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    change: DeadChange,
    reason: Option<&str>,
) -> CommandResult {
    let DeadChange { selection, all, dry_run, output } = change;
    let filter = chosen(selection, all)?;
    if dry_run {
        return show::list(&matching(store, &filter).await?, true, output.output);
    }
    let mut interrupt = Interrupt::listen()?;
    let stop = CancellationToken::new();
    let mut dropping = Box::pin(operator.drop_letters(&filter, reason, &stop));
    let dropped = tokio::select! {
        dropped = &mut dropping => dropped?,
        () = interrupt.wait() => {
            stop.cancel();
            dropping.await?
        }
    };
    report_changed("dropped", dropped, "dead letters", output.output)
}
