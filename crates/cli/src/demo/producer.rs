//! Produces every message once, and about one in five a second time: at once, or a while later, as relays do. Some may have a mistake
//! in them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

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
    pub(crate) plan: Plan,
}

/// What is to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Different messages that can be applied.
    pub(crate) messages: u32,
    /// Messages among them that name an article which does not exist.
    pub(crate) mistaken: u32,
}

/// One message of the demo.
pub(crate) struct Order {
    id: String,
    sku: u32,
    quantity: i64,
    /// Its place among those of its article; below zero, it has none.
    seq: i64,
}

impl Order {
    fn new(number: u32) -> Self {
        let quantity = i64::from(number % 3 + 1);
        Self { id: format!("order-{number}"), sku: number % SKUS, quantity, seq: i64::from(number) }
    }

    /// One for an article that there is not. Whoever puts it right does so when he likes, so it has no place in the order.
    fn mistaken(nth: u32) -> Self {
        Self { id: format!("mistaken-{nth}"), sku: SKUS + nth, quantity: 1, seq: -1 }
    }

    /// The article: messages of one keep their order.
    pub(crate) fn sku(&self) -> u32 {
        self.sku
    }

    pub(crate) fn key(&self) -> String {
        format!("sku-{}", self.sku)
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn payload(&self) -> String {
        format!(r#"{{"sku":"{}","qty":{},"seq":{}}}"#, self.key(), self.quantity, self.seq)
    }
}

/// Takes messages to the consumers. Called on a thread of its own.
pub(crate) trait Carrier: Send {
    /// Takes one more; those of one article in their order.
    fn carry(&mut self, order: &Order) -> Result<(), String>;

    /// Waits until all have arrived.
    fn flush(&mut self) -> Result<(), String>;

    /// How many may wait unread.
    fn most_unread(&self) -> i64;
}

impl Producer {
    pub(crate) fn start(mut carrier: Box<dyn Carrier>, plan: Plan) -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            match produce(&shared, &mut *carrier, plan) {
                Ok(()) => shared.finished.store(true, Ordering::SeqCst),
                Err(e) => *shared.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(e),
            };
        });
        Self { state, plan }
    }

    /// How many records were sent, copies included.
    pub(crate) fn produced(&self) -> i64 {
        self.state.produced.load(Ordering::SeqCst)
    }

    /// How much stock the different messages take together, but for those with a mistake.
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

fn produce(state: &State, carrier: &mut dyn Carrier, plan: Plan) -> Result<(), String> {
    let Plan { messages, mistaken } = plan;
    let mut late_copies: VecDeque<Order> = VecDeque::new();
    let mut mistakes = 0;
    for number in 0..messages {
        let order = Order::new(number);
        state.unique_quantity.fetch_add(order.quantity, Ordering::SeqCst);
        send(state, carrier, &order)?;
        match copy_of(number) {
            Copy::None => {}
            Copy::AtOnce => send(state, carrier, &order)?,
            Copy::Later => late_copies.push_back(order),
        }
        if late_copies.len() > 300
            && let Some(copy) = late_copies.pop_front()
        {
            send(state, carrier, &copy)?;
        }
        // Spread over the run, the last one behind everything.
        let due = u64::from(mistaken) * u64::from(number + 1) / u64::from(messages);
        while u64::from(mistakes) < due {
            send(state, carrier, &Order::mistaken(mistakes))?;
            mistakes += 1;
        }
        if number % 50 == 49 {
            thread::sleep(Duration::from_secs(50) / MESSAGES_PER_SECOND);
        }
    }
    for copy in &late_copies {
        send(state, carrier, copy)?;
    }
    carrier.flush()
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

fn send(state: &State, carrier: &mut dyn Carrier, order: &Order) -> Result<(), String> {
    let most_unread = carrier.most_unread();
    while state.produced.load(Ordering::SeqCst) - state.consumed.load(Ordering::SeqCst) > most_unread {
        if state.stop.load(Ordering::SeqCst) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    carrier.carry(order)?;
    state.produced.fetch_add(1, Ordering::SeqCst);
    Ok(())
}
