//! The connections that publish, each busy with one batch at a time: what happens to a batch, or to a relay that must let go of
//! it, touches no other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::publisher::Publisher;
use crate::error::Error;
use crate::settings::Rabbitmq;

pub(super) struct Pool {
    rabbitmq: Rabbitmq,
    idle: Mutex<Vec<Publisher>>,
    places: Semaphore,
}

/// A publisher for one batch. Dropping it cuts its connection, so that nothing of the batch is sent any more.
pub(super) struct Leased<'p> {
    pool: &'p Pool,
    publisher: Publisher,
    _place: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(rabbitmq: Rabbitmq, places: usize) -> Self {
        Self { rabbitmq, idle: Mutex::default(), places: Semaphore::new(places) }
    }

    pub(super) fn rabbitmq(&self) -> &Rabbitmq {
        &self.rabbitmq
    }

    pub(super) async fn lease(&self) -> Result<Leased<'_>, Error> {
        let closed = |_| Error::Setting("the sink is closed".to_owned());
        let place = self.places.acquire().await.map_err(closed)?;
        let publisher = match self.take_idle() {
            Some(publisher) => publisher,
            None => Publisher::open(&self.rabbitmq).await?,
        };
        Ok(Leased { pool: self, publisher, _place: place })
    }

    fn take_idle(&self) -> Option<Publisher> {
        let mut idle = self.idle();
        while let Some(publisher) = idle.pop() {
            if publisher.is_usable() {
                return Some(publisher);
            }
        }
        None
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Publisher>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    /// The broker writes a warning for each connection that ends without a goodbye.
    fn drop(&mut self) {
        let idle = std::mem::take(&mut *self.idle());
        if let Ok(runtime) = Handle::try_current() {
            for publisher in idle {
                runtime.spawn(publisher.close());
            }
        }
    }
}

impl Leased<'_> {
    pub(super) fn publisher(&mut self) -> &mut Publisher {
        &mut self.publisher
    }

    /// A new connection instead of one that is spent.
    pub(super) async fn replace(&mut self) -> Result<(), Error> {
        self.publisher = Publisher::open(&self.pool.rabbitmq).await?;
        Ok(())
    }

    /// All of the batch is reported: the next one may have the connection.
    pub(super) fn keep(self) {
        if self.publisher.is_usable() {
            self.pool.idle().push(self.publisher);
        }
    }
}
