//! Remembers the gauges that the reader sets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

#[derive(Default)]
struct Value(Mutex<f64>);

impl GaugeFn for Value {
    fn increment(&self, value: f64) {
        *self.0.lock().unwrap() += value;
    }
    fn decrement(&self, value: f64) {
        *self.0.lock().unwrap() -= value;
    }
    fn set(&self, value: f64) {
        *self.0.lock().unwrap() = value;
    }
}

/// By name and consumer.
type Values = HashMap<(String, String), Arc<Value>>;

#[derive(Clone, Default)]
pub struct Gauges(Arc<Mutex<Values>>);

impl Gauges {
    /// One for the process.
    pub fn install() -> Self {
        static INSTALLED: OnceLock<Gauges> = OnceLock::new();
        let install = || {
            let gauges = Self::default();
            metrics::set_global_recorder(gauges.clone()).ok();
            gauges
        };
        INSTALLED.get_or_init(install).clone()
    }

    pub fn of(&self, consumer: &str, name: &str) -> Option<f64> {
        let all = self.0.lock().unwrap();
        all.get(&(name.to_owned(), consumer.to_owned())).map(|value| *value.0.lock().unwrap())
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let consumer = key.labels().find(|l| l.key() == "consumer").map_or("", |l| l.value());
        let mut all = self.0.lock().unwrap();
        Gauge::from_arc(Arc::clone(all.entry((key.name().to_owned(), consumer.to_owned())).or_default()))
    }
}
