//! The messages most tests use: orders that take something out of a stock.

/// How many articles there are.
pub(crate) const SKUS: u32 = 12;
/// How much there is of each at the start.
pub(crate) const ON_HAND: i64 = 1_000_000;

/// One message.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) id: String,
    /// Which article: also the key, and what decides about the partition.
    pub(crate) sku: u32,
    pub(crate) qty: i64,
    /// Ascending per article.
    pub(crate) seq: i64,
}

impl Order {
    pub(crate) fn number(n: u32) -> Self {
        Self { id: format!("order-{n}"), sku: n % SKUS, qty: i64::from(n % 3) + 1, seq: i64::from(n) }
    }

    /// The next order of this article, with its own id.
    pub(crate) fn of(sku: u32, seq: i64) -> Self {
        Self { id: format!("sku-{sku}-{seq}"), sku, qty: 1, seq }
    }

    pub(crate) fn key(&self) -> String {
        format!("sku-{}", self.sku)
    }

    pub(crate) fn payload(&self) -> String {
        let Self { qty, seq, .. } = self;
        format!(r#"{{"sku":"{}","qty":{qty},"seq":{seq}}}"#, self.key())
    }
}

/// Orders with these numbers.
pub(crate) fn orders(numbers: std::ops::Range<u32>) -> Vec<Order> {
    numbers.map(Order::number).collect()
}
