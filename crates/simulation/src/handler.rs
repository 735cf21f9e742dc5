//! The handlers: what they do with a message depends on the message.

use std::time::{Duration, SystemTime};

use oncebox_core::error::{Result, reject, retry_after};
use oncebox_core::inbox::{Apply, Failure, Handler};
use oncebox_core::message::Message;
use oncebox_core::outbox::{Event as Emitted, emit_all};
use oncebox_core::store::ErrorClass;

use crate::coverage::Event;
use crate::log::{header_of, number_of};
use crate::messages::Behaviour;
use crate::run::Planned;
use crate::sink::EXPIRES;
use crate::store::{Conn, Effect, ModelError, ModelStore};
use crate::world::{Actor, World};

/// When a handler wants a message later: longer than anything else takes.
const RETRY_LATER: Duration = Duration::from_secs(20 * 60);

/// One message at a time.
#[derive(Clone)]
pub(crate) struct OneMessage {
    pub(crate) world: World,
    pub(crate) actor: Actor,
    pub(crate) consumer: usize,
}

/// All fresh messages of a batch.
#[derive(Clone)]
pub(crate) struct WholeBatch(pub(crate) OneMessage);

impl Handler<ModelStore> for OneMessage {
    async fn handle(&self, tx: &mut Conn, message: &Message) -> Result<()> {
        tx.is_about(number_of(message.record()));
        self.apply_one(tx, message).await
    }
}

impl Apply<ModelStore> for WholeBatch {
    async fn apply(&self, conn: &mut Conn, fresh: &[Message]) -> Result<(), Failure> {
        let world = &self.0.world;
        for message in fresh {
            conn.is_about(number_of(message.record()));
        }
        let largest = world.lock().config.largest_batch;
        if largest.is_some_and(|largest| fresh.len() > largest) {
            world.lock().saw(Event::BatchTooLarge);
            let error = ModelError::new(ErrorClass::Transient, "too many parameters");
            return Err(Failure::of_batch(error));
        }
        for message in fresh {
            self.0.apply_one(conn, message).await.map_err(Failure::of_batch)?;
        }
        Ok(())
    }
}

/// Some events are delayed, some expire.
fn timed(event: Emitted, number: u32, now_ms: i64) -> Emitted {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms.unsigned_abs());
    match number % 9 {
        2 | 7 => event.deliver_at(now + Duration::from_secs(u64::from(number % 100))),
        5 => event.expires_at(now + Duration::from_secs(30)).header(EXPIRES, (now_ms + 30_000).to_string()),
        _ => event,
    }
}

impl OneMessage {
    async fn apply_one(&self, conn: &mut Conn, message: &Message) -> Result<()> {
        self.world.takes_time(self.actor).await;
        let record = message.record();
        let (behaviour, invoked, emits) = {
            let mut inner = self.world.lock();
            let Some(sent) = inner.messages.get_mut(number_of(record)) else {
                return Err(reject("nobody has sent this message"));
            };
            sent.invoked += 1;
            let behaviour = if sent.mended { Behaviour::Good } else { sent.behaviour };
            (behaviour, sent.invoked, sent.emits)
        };
        if behaviour != Behaviour::Good {
            let (process, consumer, number) = (self.actor.process, self.consumer, number_of(record));
            self.world.lock().note(|| {
                format!("p{process} c{consumer} tries m{number}: {behaviour:?}, for the {invoked}. time")
            });
        }
        self.misbehave(conn, number_of(record), behaviour, invoked).await?;
        let effect = {
            let mut inner = self.world.lock();
            Effect {
                consumer: self.consumer,
                id: message.id().as_str().to_owned(),
                key: record.key.clone(),
                place: inner.log.place(&record.topic, record.partition),
                offset: record.offset,
                seq: header_of(record, "seq"),
                writing: header_of(record, "writing"),
                appended_ms: header_of(record, "appended"),
                true_ms: 0,
                replayed: false,
            }
        };
        conn.write_effect(effect).await?;
        if emits > 0 {
            let key = record.key.clone().unwrap_or_default();
            let (number, now_ms) = (number_of(record), self.world.lock().now_ms());
            let event = |n: u8| {
                let event = Emitted::to(format!("out{}", n % 2)).key(&key).bytes(format!("{n}"));
                timed(event, number + u32::from(n), now_ms)
            };
            let events: Vec<Emitted> = (0..emits).map(event).collect();
            emit_all::<ModelStore>(conn, &events).await?;
            self.world.lock().saw(Event::Emitted);
        }
        if behaviour == Behaviour::Poisons {
            self.world.lock().saw(Event::Poisoned);
            conn.poison();
        }
        Ok(())
    }

    async fn misbehave(
        &self,
        conn: &mut Conn,
        number: u32,
        behaviour: Behaviour,
        invoked: u32,
    ) -> Result<()> {
        let saw = |event| self.world.lock().saw(event);
        match behaviour {
            Behaviour::Good | Behaviour::Poisons => Ok(()),
            Behaviour::FailsTimes(times) if invoked > times => Ok(()),
            Behaviour::CrashesTimes(times) if invoked > times => Ok(()),
            Behaviour::RetriesLater(times) if invoked > times => Ok(()),
            Behaviour::RetriesLater(_) => {
                saw(Event::RetriedLater);
                Err(retry_after(RETRY_LATER, "the handler wants it later"))
            }
            Behaviour::Fails | Behaviour::FailsTimes(_) => {
                saw(Event::Failed);
                Err("the handler does not like it".into())
            }
            Behaviour::Rejects => {
                saw(Event::Rejected);
                Err(reject("the handler refuses it"))
            }
            Behaviour::Panics => {
                saw(Event::Panicked);
                std::panic::panic_any(Planned);
            }
            Behaviour::Crashes | Behaviour::CrashesTimes(_) => {
                tokio::time::sleep(Duration::from_millis(3)).await;
                self.world.alive(self.actor).await;
                saw(Event::CrashedProcess);
                self.world.lock().check_ends(self.actor, number);
                self.world.crash(self.actor);
                std::future::pending().await
            }
            Behaviour::AlwaysTransient => {
                saw(Event::AlwaysTransient);
                conn.poison();
                Err(ModelError::new(ErrorClass::Transient, "out of memory").into())
            }
        }
    }
}
