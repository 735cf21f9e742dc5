//! Produces every message once, and about one in five a second time: at once, or a while later, as relays do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};

use super::broker::Broker;
use super::database::SKUS;

/// The demo should be watched, and kills need something to interrupt.
const MESSAGES_PER_SECOND: u32 = 1_500;

#[derive(Default)]
struct State {
    produced: AtomicI64,
    unique_quantity: AtomicI64,
    consumed: AtomicI64,
    stop: AtomicBool,
    finished: AtomicBool,
    failed: Mutex<Option<String>>,
}

pub(crate) struct Producer {
    state: Arc<State>,
    pub(crate) unique: u32,
}

/// One message of the demo.
struct Order {
    number: u32,
    sku: u32,
    quantity: i64,
}

impl Producer {
    pub(crate) fn start(broker: &Broker, messages: u32) -> Self {
        let state = Arc::new(State::default());
        let (shared, servers, topics, most_unread) =
            (Arc::clone(&state), broker.servers.clone(), broker.topics(), broker.most_unread());
        thread::spawn(move || {
            match produce(&shared, &servers, &topics, messages, most_unread) {
                Ok(()) => shared.finished.store(true, Ordering::SeqCst),
                Err(e) => *shared.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(e.to_string()),
            };
        });
        Self { state, unique: messages }
    }

    /// How many records the broker has, copies included.
    pub(crate) fn produced(&self) -> i64 {
        self.state.produced.load(Ordering::SeqCst)
    }

    /// How much stock the different messages take together.
    pub(crate) fn unique_quantity(&self) -> i64 {
        self.state.unique_quantity.load(Ordering::SeqCst)
    }

    pub(crate) fn note_consumed(&self, records: i64) {
        self.state.consumed.store(records, Ordering::SeqCst);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.state.finished.load(Ordering::SeqCst)
    }

    pub(crate) fn failed(&self) -> Option<String> {
        self.state.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn stop(&self) {
        self.state.stop.store(true, Ordering::SeqCst);
    }
}

fn produce(
    state: &State,
    servers: &str,
    topics: &[String],
    messages: u32,
    most_unread: i64,
) -> Result<(), KafkaError> {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .create()?;
    let mut late_copies: VecDeque<Order> = VecDeque::new();
    for number in 0..messages {
        let order = Order { number, sku: number % SKUS, quantity: i64::from(number % 3 + 1) };
        state.unique_quantity.fetch_add(order.quantity, Ordering::SeqCst);
        send(state, &producer, topics, &order, most_unread)?;
        match copy_of(number) {
            Copy::None => {}
            Copy::AtOnce => send(state, &producer, topics, &order, most_unread)?,
            Copy::Later => late_copies.push_back(order),
        }
        if late_copies.len() > 300
            && let Some(copy) = late_copies.pop_front()
        {
            send(state, &producer, topics, &copy, most_unread)?;
        }
        if number % 50 == 49 {
            thread::sleep(Duration::from_secs(50) / MESSAGES_PER_SECOND);
        }
    }
    for copy in &late_copies {
        send(state, &producer, topics, copy, most_unread)?;
    }
    producer.flush(Duration::from_secs(60))
}

enum Copy {
    None,
    AtOnce,
    Later,
}

/// One in ten is sent again at once, one in ten a while later.
fn copy_of(number: u32) -> Copy {
    match number % 10 {
        3 => Copy::AtOnce,
        7 => Copy::Later,
        _ => Copy::None,
    }
}

fn send(
    state: &State,
    producer: &ThreadedProducer<DefaultProducerContext>,
    topics: &[String],
    order: &Order,
    most_unread: i64,
) -> Result<(), KafkaError> {
    while state.produced.load(Ordering::SeqCst) - state.consumed.load(Ordering::SeqCst) > most_unread {
        if state.stop.load(Ordering::SeqCst) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let topic = &topics[order.sku as usize % topics.len()];
    let key = format!("sku-{}", order.sku);
    let id = format!("order-{}", order.number);
    let payload = format!(r#"{{"sku":"{key}","qty":{},"seq":{}}}"#, order.quantity, order.number);
    let mut record = BaseRecord::to(topic)
        .key(&key)
        .payload(&payload)
        .headers(OwnedHeaders::new().insert(Header { key: "event_id", value: Some(&id) }));
    while let Err((error, same)) = producer.send(record) {
        if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
            return Err(error);
        }
        record = same;
        thread::sleep(Duration::from_millis(20));
    }
    state.produced.fetch_add(1, Ordering::SeqCst);
    Ok(())
}
