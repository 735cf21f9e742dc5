//! The partition that Java's producer would choose: what consumers of other producers of the same keys rely on.

/// `Utils.toPositive(Utils.murmur2(key)) % partitions`.
pub(crate) fn partition_of(key: &str, partitions: i32) -> i32 {
    (murmur2(key.as_bytes()) & i32::MAX) % partitions
}

fn murmur2(data: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ u32::try_from(data.len()).expect("a short key");
    let words = data.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    for (nth, byte) in rest.iter().enumerate() {
        hash ^= u32::from(*byte) << (8 * nth);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)).cast_signed()
}

/// The vectors of Kafka's own tests.
#[test]
fn the_hash_is_javas() {
    for (key, hash) in [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ] {
        assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
    }
}
