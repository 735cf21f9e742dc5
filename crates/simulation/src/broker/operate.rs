//! What operators do with a queue at which a process stands still.

use super::Broker;
use crate::coverage::Event;
use crate::store::Spot;
use crate::world::Inner;

impl Inner {
    /// Mends what waits in the queues where somebody stands still, takes out what ends the process, and begins anew.
    pub(crate) fn cure_queues(&mut self) {
        let stops: Vec<((Spot, usize), String)> =
            self.broker.stops.iter().map(|(at, (_, reason))| (*at, reason.clone())).collect();
        for ((spot, process), reason) in stops {
            let entries = self.broker.queues.get(&spot).into_iter().flat_map(|queue| queue.entries.values());
            let numbers: Vec<u32> = entries.map(|entry| entry.number).collect();
            for number in numbers {
                if let Some(sent) = self.messages.get_mut(number) {
                    sent.mended = true;
                }
            }
            self.saw(Event::Mended);
            // "halted at m3 at …: the process ended … Take it out of the queue"
            if reason.contains("Take it out of the queue") {
                let id = reason.split_whitespace().nth(2).unwrap_or_default();
                self.broker.take_out_all(spot, id);
                self.note(|| format!("an operator takes {id} out of {}", spot.place));
                self.saw(Event::TakenOut);
            }
            self.broker.reopen.insert((spot, process));
        }
    }
}

impl Broker {
    /// All copies of a message leave the queue.
    fn take_out_all(&mut self, spot: Spot, id: &str) {
        let Some(queue) = self.queues.get_mut(&spot) else { return };
        let taken_out = &mut self.taken_out;
        queue.entries.retain(|_, entry| {
            let goes = entry.id.as_deref() == Some(id);
            if goes {
                taken_out.insert((spot, entry.number));
            }
            !goes
        });
    }
}
