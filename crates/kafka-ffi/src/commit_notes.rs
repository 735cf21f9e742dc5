//! What stands beside an offset that a group has committed. Anybody may have written it; the binding panics at what is not UTF-8.

use std::slice;

use rdkafka::TopicPartitionList;

/// The bytes beside each offset of the list, in its order; empty where there are none.
#[must_use]
pub fn commit_notes(list: &TopicPartitionList) -> Vec<Vec<u8>> {
    // SAFETY: the list is borrowed, so its pointer is valid, and nobody changes it meanwhile.
    let raw = unsafe { &*list.ptr() };
    if raw.elems.is_null() {
        return Vec::new();
    }
    // SAFETY: librdkafka keeps as many elements there as it counts.
    let elements = unsafe { slice::from_raw_parts(raw.elems, list.count()) };
    let note = |note: *const u8, length: usize| {
        if note.is_null() {
            return Vec::new();
        }
        // SAFETY: it has that length, and belongs to the list.
        unsafe { slice::from_raw_parts(note, length) }.to_vec()
    };
    elements.iter().map(|element| note(element.metadata.cast(), element.metadata_size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::Offset;

    #[test]
    fn notes_come_in_the_order_of_the_list() {
        assert!(commit_notes(&TopicPartitionList::new()).is_empty());
        let mut list = TopicPartitionList::new();
        for partition in 0..3 {
            list.add_partition_offset("t", partition, Offset::Offset(7)).unwrap();
        }
        list.elements()[1].set_metadata("ours");
        assert_eq!(commit_notes(&list), [b"".to_vec(), b"ours".to_vec(), b"".to_vec()]);
    }
}
