//! The key of a receipt: sixteen bytes that stand for (consumer, tenant, message id).

use sha2::{Digest, Sha256};

use crate::names::{ConsumerName, MessageId, Tenant};

/// The unique key of a receipt.
///
/// A short key of fixed width makes the unique index of the inbox small. It is taken from SHA-256, so nobody can forge
/// an id that collides with somebody else's receipt. An id that is a UUIDv7 lends the key its leading 48 bits, its own
/// time: receipts of one day then lie next to each other in the index, which keeps inserts cheap when the table is large,
/// and lets the table be partitioned by day. All other keys have the top bit set, so the two kinds never mix.
///
/// A database can compute the same key in SQL; `oncebox_claim` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReceiptKey([u8; 16]);

impl ReceiptKey {
    /// The key of this message for this consumer.
    ///
    /// ```
    /// use oncebox_core::inbox::ReceiptKey;
    /// use oncebox_core::names::{ConsumerName, MessageId, Tenant};
    ///
    /// let id = MessageId::new("order-1")?;
    /// let stock = ReceiptKey::of(&ConsumerName::new("stock")?, &Tenant::none(), &id);
    /// let billing = ReceiptKey::of(&ConsumerName::new("billing")?, &Tenant::none(), &id);
    /// assert_ne!(stock, billing); // each consumer has its own receipt
    /// # Ok::<(), oncebox_core::names::NameError>(())
    /// ```
    #[must_use]
    pub fn of(consumer: &ConsumerName, tenant: &Tenant, id: &MessageId) -> Self {
        let mut hash = Sha256::new();
        for scope in [consumer.as_str(), tenant.as_str()] {
            // Names are bounded far below 4 GiB; the length keeps ("a","bc") apart from ("ab","c").
            hash.update((scope.len() as u32).to_be_bytes());
            hash.update(scope.as_bytes());
        }
        hash.update(id.as_str().as_bytes());
        let digest = hash.finalize();

        let mut key = [0_u8; 16];
        if let Some(time) = uuid_v7_time(id.as_str()) {
            key[..6].copy_from_slice(&time);
            key[6..].copy_from_slice(&digest[..10]);
        } else {
            key.copy_from_slice(&digest[..16]);
            key[0] |= 0x80;
        }
        Self(key)
    }

    /// The bytes, in the order in which databases compare them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl ReceiptKey {
    /// A number that stands for it where there is room for no more.
    pub(crate) fn number(self) -> i64 {
        let low = u128::from_be_bytes(self.0) as u64;
        (low >> 1) as i64
    }
}

impl From<[u8; 16]> for ReceiptKey {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// The 48-bit time of an id in the canonical lower-case form of UUIDv7. Other spellings are other ids and simply get no
/// locality. A time with its top bit set (after the year 6400) is left to the hash.
fn uuid_v7_time(id: &str) -> Option<[u8; 6]> {
    let b = id.as_bytes();
    if b.len() != 36 || b[14] != b'7' || !matches!(b[19], b'8' | b'9' | b'a' | b'b') || b[0] > b'7' {
        return None;
    }
    for (i, c) in b.iter().enumerate() {
        let fits = match i {
            8 | 13 | 18 | 23 => *c == b'-',
            _ => matches!(c, b'0'..=b'9' | b'a'..=b'f'),
        };
        if !fits {
            return None;
        }
    }
    let nibble = |c: u8| if c <= b'9' { c - b'0' } else { c - b'a' + 10 };
    let mut time = [0_u8; 6];
    // The twelve hex digits of the time stand at 0..8 and 9..13.
    for (slot, at) in time.iter_mut().zip([0, 2, 4, 6, 9, 11]) {
        *slot = nibble(b[at]) << 4 | nibble(b[at + 1]);
    }
    Some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(consumer: &str, tenant: &str, id: &str) -> ReceiptKey {
        ReceiptKey::of(
            &ConsumerName::new(consumer).unwrap(),
            &Tenant::new(tenant).unwrap(),
            &MessageId::new(id).unwrap(),
        )
    }

    #[test]
    fn scopes_do_not_run_into_each_other() {
        assert_ne!(key("a", "bc", "d"), key("ab", "c", "d"));
        assert_ne!(key("a", "b", "cd"), key("a", "bc", "d"));
    }

    #[test]
    fn a_v7_id_gives_its_time_and_nothing_else_does() {
        let v7 = key("c", "", "01890a5d-ac96-774b-bcce-b302099a8057");
        assert_eq!(&v7.as_bytes()[..6], &[0x01, 0x89, 0x0a, 0x5d, 0xac, 0x96]);
        for other in [
            "01890A5D-AC96-774B-BCCE-B302099A8057",
            "01890a5d-ac96-474b-bcce-b302099a8057",
            "f1890a5d-ac96-774b-bcce-b302099a8057",
            "01890a5d-ac96-774b-ccce-b302099a8057",
            "order-1",
        ] {
            assert!(key("c", "", other).as_bytes()[0] & 0x80 != 0, "{other}");
        }
    }
}
