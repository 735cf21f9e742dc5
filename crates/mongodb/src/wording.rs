//! How an error of the database reads: whole, and without the values that it quotes.
//!
//! Which texts quote values is told by the server's code. What it says is always in English, so that what it quotes of a key can be cut
//! off.

use std::error::Error as StdError;

use mongodb::error::Error;
use oncebox_core::error::Wording;
use oncebox_core::store::{ErrorClass, StoreError};

use crate::classify::{DUPLICATE_KEY, Said, class_of_code, code_of, is_of_values, said};

/// An error of the store, with both of its texts.
pub(crate) fn store_error(class: ErrorClass, doing: impl Into<String>, error: Error) -> StoreError {
    let plain = of_driver(&error).plain;
    StoreError::new(class, doing, Said(error)).worded(plain)
}

/// See [`oncebox_core::store::Store::wording`].
pub(crate) fn wording(error: &(dyn StdError + 'static)) -> Option<Wording> {
    error.downcast_ref::<Error>().map(of_driver)
}

/// What the server says, or the driver.
pub(crate) fn of_driver(error: &Error) -> Wording {
    let whole = said(error);
    let plain = match code_of(error) {
        Some(code) => plain(&whole, code),
        None if is_of_values(error) => "a value does not fit".to_owned(),
        None => whole.clone(),
    };
    Wording { whole, plain }
}

/// What may be said of a text of the server, which ends with its code.
pub(crate) fn plain(whole: &str, code: i32) -> String {
    match code {
        DUPLICATE_KEY => {
            let named = whole.split(" dup key:").next().unwrap_or_default();
            if named == whole {
                format!("a document with this key is there already ({code})")
            } else {
                format!("{named} ({code})")
            }
        }
        // A validator refused it, or it took too long: neither quotes anything.
        121 | 50 => whole.to_owned(),
        _ if class_of_code(code) == ErrorClass::Failed => format!("the database refused it ({code})"),
        _ => whole.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_shown() {
        let taken = "E11000 duplicate key error collection: shop.orders index: mail_1 dup key: { mail: \"a@b.c\" } (11000)";
        assert_eq!(
            plain(taken, 11000),
            "E11000 duplicate key error collection: shop.orders index: mail_1 (11000)"
        );
        assert!(!plain("another text with a@b.c", 11000).contains("a@b.c"));
        assert_eq!(plain("Cannot apply $inc to \"4711\" (14)", 14), "the database refused it (14)");
        assert_eq!(plain("not authorized on shop (13)", 13), "not authorized on shop (13)");
    }
}
