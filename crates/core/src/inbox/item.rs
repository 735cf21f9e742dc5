//! A record on its way through an inbox: with an identity, or unfit to have one.

use std::fmt;

use super::identity::Unfit;
use super::receipt::ReceiptKey;
use crate::message::{Message, Record};

/// A record with its identity and the key of its receipt, or why it has none.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Fit(Message, ReceiptKey),
    Unfit(Box<Unfit>),
}

impl Item {
    pub(crate) fn record(&self) -> &Record {
        match self {
            Self::Fit(message, _) => message.record(),
            Self::Unfit(unfit) => &unfit.record,
        }
    }

    pub(crate) fn offset(&self) -> i64 {
        self.record().offset
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fit(message, _) => write!(f, "{} at {}", message.id(), message.record().coordinates()),
            Self::Unfit(unfit) => f.write_str(&unfit.record.coordinates()),
        }
    }
}
