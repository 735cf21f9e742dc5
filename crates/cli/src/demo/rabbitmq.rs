//! Messages that travel through a queue of the user's own RabbitMQ.

use std::sync::OnceLock;
use std::time::Duration;

use oncebox_rabbitmq::{Error, Filler, OwnQueue, Rabbitmq};
use tokio::runtime::Handle;

use super::courier::Sections;
use super::producer::{Carrier, Order};
use crate::exit::{Exit, Failure};
use crate::output;

/// The variable that tells consumers the URL of the broker: there may be a password in it, which no file should hold.
const VARIABLE: &str = "ONCEBOX_DEMO_RABBITMQ";
/// How many messages a consumer has in its hands. Those of one that was killed are applied one by one.
const PREFETCH: u32 = 100;
/// How many messages may wait in the queue.
const MOST_UNREAD: i64 = 200_000;

/// A queue. Its single active consumer is one of the processes; when that is killed, another one goes on.
pub(crate) struct Post {
    url: String,
    rabbitmq: Rabbitmq,
    name: String,
    queue: OnceLock<OwnQueue>,
}

impl Post {
    pub(crate) fn new(given: Option<&str>) -> Result<Self, Failure> {
        let Some(url) = given else {
            return Err(Failure {
                exit: Exit::Usage,
                text: "--source rabbitmq needs a broker, and there is none in this process: give its address with \
                       --rabbitmq amqp://USER:PASSWORD@HOST:5672/VHOST"
                    .to_owned(),
            });
        };
        let rabbitmq = Rabbitmq::nodes(url)
            .map_err(|e| Failure { exit: Exit::Usage, text: format!("--rabbitmq: {e}") })?;
        let name = format!("oncebox-demo-{}", uuid::Uuid::now_v7().simple());
        Ok(Self { url: url.to_owned(), rabbitmq, name, queue: OnceLock::new() })
    }

    pub(crate) async fn make_queue(&self) -> Result<(), Failure> {
        let queue = self.rabbitmq.own_queue(&self.name).await.map_err(|e| unusable(&e))?;
        self.queue.get_or_init(|| queue).make().await.map_err(|e| unusable(&e))
    }

    pub(crate) fn describe(&self) -> String {
        format!("queue {} of your RabbitMQ", self.name)
    }

    pub(crate) fn sections(&self) -> Sections {
        Sections {
            broker: format!("[rabbitmq]\nurl = \"${{{VARIABLE}}}\"\n"),
            inbox: format!("queue = \"{}\"\nprefetch = {PREFETCH}\nid = \"property:message_id\"", self.name),
        }
    }

    pub(crate) fn variable(&self) -> (&'static str, &str) {
        (VARIABLE, &self.url)
    }

    /// How many messages wait. What consumers have in their hands is not among them.
    pub(crate) async fn waiting(&self) -> Result<i64, Failure> {
        match self.queue.get() {
            Some(queue) => queue.waiting().await.map(i64::from).map_err(|e| unusable(&e)),
            None => Ok(0),
        }
    }

    /// How long nothing must have moved before consumers have nothing in their hands any more, most likely.
    pub(crate) const QUIET: Duration = Duration::from_millis(500);

    /// To be called inside of a runtime, on which the client runs.
    pub(crate) async fn carrier(&self) -> Result<impl Carrier + use<>, Failure> {
        let Some(queue) = self.queue.get() else { return Err(Failure::data("there is no queue yet")) };
        let filler = queue.filler().await.map_err(|e| unusable(&e))?;
        Ok(ToQueue { runtime: Handle::current(), filler })
    }

    pub(crate) async fn remove_queue(&self) {
        if let Some(queue) = self.queue.get()
            && let Err(error) = queue.remove().await
        {
            output::note(&format!("the queue {} could not be removed: {error}", self.name));
        }
    }
}

fn unusable(error: &Error) -> Failure {
    Failure { exit: Exit::Unreachable, text: format!("--rabbitmq: the broker cannot be used: {error}") }
}

/// One queue, so the order holds.
struct ToQueue {
    runtime: Handle,
    filler: Filler,
}

impl Carrier for ToQueue {
    fn carry(&mut self, order: &Order) -> Result<(), String> {
        let (id, key, payload) = (order.id(), order.key(), order.payload());
        let putting = self.filler.put(id, &key, payload.as_bytes());
        self.runtime.block_on(putting).map_err(|e| e.to_string())
    }

    fn flush(&mut self) -> Result<(), String> {
        self.runtime.block_on(self.filler.confirm_all()).map_err(|e| e.to_string())
    }

    fn most_unread(&self) -> i64 {
        MOST_UNREAD
    }
}
