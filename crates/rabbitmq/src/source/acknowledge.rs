//! Tells the broker what became of its deliveries, on the channel that delivered them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use oncebox_core::source::{Answer, Answered};
use tokio::sync::mpsc::UnboundedReceiver;

use super::acks::{Acks, Command};
use super::health::Counts;
use crate::connection::answer;
use crate::error::Error;

/// Takes the answers of the engine, and acknowledges.
pub(super) struct Acknowledger {
    channel: Channel,
    /// Has no bound of its own, and needs none: there is one answer for each delivery, and the broker delivers no more than the
    /// prefetch before they are acknowledged.
    answers: UnboundedReceiver<Answered>,
    acks: Acks,
    counts: Arc<Counts>,
}

impl Acknowledger {
    pub(super) fn new(channel: Channel, answers: UnboundedReceiver<Answered>, counts: Arc<Counts>) -> Self {
        Self { channel, answers, acks: Acks::new(), counts }
    }

    /// Acknowledges until that fails. May be dropped and called again.
    pub(super) async fn run(&mut self) -> Error {
        loop {
            if let Err(error) = self.tell().await {
                return error;
            }
            match self.answers.recv().await {
                Some(first) => self.take(first),
                // The stream is closed and gone.
                None => std::future::pending().await,
            }
        }
    }

    /// Acknowledges what is answered by now, and gives back whatever else was delivered, up to this number.
    pub(super) async fn finish(&mut self, delivered: u64) -> Result<(), Error> {
        if let Ok(first) = self.answers.try_recv() {
            self.take(first);
        }
        self.tell().await?;
        match self.acks.last_open(delivered) {
            Some(tag) => self.give_back(tag, true).await,
            None => Ok(()),
        }
    }

    /// With an answer come the others that are here already.
    fn take(&mut self, first: Answered) {
        let (mut settled, mut given_back) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(Answered { delivery, answer, .. }) = next {
            let tag = u64::try_from(delivery).unwrap_or_default();
            match answer {
                Answer::GivenBack(_) => given_back.push(tag),
                _ => settled.push(tag),
            }
            self.counts.answered.fetch_add(1, Ordering::Relaxed);
            next = self.answers.try_recv().ok();
        }
        self.acks.answered(&settled, &given_back);
    }

    async fn tell(&mut self) -> Result<(), Error> {
        while let Some(command) = self.acks.next_command() {
            match command {
                Command::Ack(tag) => self.ack(tag, false).await?,
                Command::AckUpTo(tag) => self.ack(tag, true).await?,
                Command::GiveBack(tag) => self.give_back(tag, false).await?,
            }
        }
        Ok(())
    }

    async fn ack(&self, tag: u64, multiple: bool) -> Result<(), Error> {
        answer("acknowledging", self.channel.basic_ack(tag, BasicAckOptions { multiple })).await
    }

    async fn give_back(&self, tag: u64, multiple: bool) -> Result<(), Error> {
        let options = BasicNackOptions { multiple, requeue: true };
        answer("giving back", self.channel.basic_nack(tag, options)).await
    }
}
