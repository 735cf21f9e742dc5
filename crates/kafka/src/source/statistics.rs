//! What librdkafka's statistics say, every few seconds: can brokers be reached, are we in the group, where do logs end, does
//! every partition have a leader, and is everything fetched that should be?

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::Deserialize;
use tracing::warn;

use super::assignment::fetch_again;
use super::partition::{Partition, Phase, named};
use super::reader::Reader;
use crate::error::Error;

/// A partition that is not fetched for so long is fetched anew.
const FETCHED_ANEW_AFTER: Duration = Duration::from_secs(30);
/// When that has not helped for so long, the client is made anew.
const MAX_STALLED: Duration = Duration::from_secs(90);

/// The few of the statistics that are of use.
#[derive(Debug, Deserialize)]
pub(super) struct Statistics {
    brokers: HashMap<String, Broker>,
    topics: HashMap<String, Topic>,
    cgrp: Option<Group>,
}

#[derive(Debug, Deserialize)]
struct Broker {
    nodeid: i32,
    state: String,
}

#[derive(Debug, Deserialize)]
struct Topic {
    partitions: HashMap<i32, Fetched>,
}

#[derive(Debug, Deserialize)]
struct Fetched {
    leader: i32,
    /// Who is asked: the leader, or a replica that is nearer.
    broker: i32,
    fetch_state: FetchState,
    hi_offset: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FetchState {
    Active,
    #[serde(other)]
    Resting,
}

#[derive(Debug, Deserialize)]
struct Group {
    state: String,
    join_state: String,
}

impl Statistics {
    pub(super) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

impl Reader {
    /// Takes in what the statistics say about the brokers, the group and our partitions.
    pub(super) fn take_in_statistics(&mut self, statistics: &Statistics) -> Result<(), Error> {
        let up: HashSet<i32> =
            statistics.brokers.values().filter(|b| b.state == "UP").map(|broker| broker.nodeid).collect();
        let group = statistics.cgrp.as_ref();
        let coordinated = group.is_some_and(|group| group.state == "up");
        self.health.note_connections(!up.is_empty(), coordinated);
        self.health.note_group(group.map_or("unknown", |group| &group.join_state));
        let connected = self.health.is_connected();
        let mut stuck = Vec::new();
        for partition in self.partitions.iter_mut() {
            let topic = statistics.topics.get(&*partition.topic);
            let Some(seen) = topic.and_then(|t| t.partitions.get(&partition.number)) else { continue };
            if seen.hi_offset >= 0 {
                partition.high = Some(seen.hi_offset);
            }
            let flowing = connected && partition.phase == Phase::Flowing;
            let led = seen.leader >= 0 && (up.contains(&seen.leader) || up.contains(&seen.broker));
            partition.leaderless.note(flowing && !led);
            partition.stalled.note(flowing && led && seen.fetch_state != FetchState::Active);
            let stalled = partition.stalled.lasts();
            if stalled > MAX_STALLED {
                return Err(Error::Fatal(format!("{} is not fetched any more", partition.place())));
            }
            let stuck_now = stalled > FETCHED_ANEW_AFTER;
            if stuck_now && !partition.fetched_anew {
                stuck.push(partition.key());
            }
            partition.fetched_anew = stuck_now;
        }
        for (topic, number) in stuck {
            warn!(consumer = self.intake.consumer(), %topic, number, "not fetched for a while; fetching it anew");
            let again = fetch_again(&self.consumer, &self.partitions, &topic, number);
            again.map_err(|e| Error::Fatal(e.to_string()))?;
        }
        let those = |is: fn(&Partition) -> bool| {
            let places: Vec<_> =
                self.partitions.iter().filter(|p| is(p)).map(|p| (&*p.topic, p.number)).collect();
            (!places.is_empty()).then(|| named(places.into_iter()))
        };
        let leaderless = those(|p| p.leaderless.is_more_than_a_moment());
        let stalled = those(|p| p.stalled.is_more_than_a_moment());
        self.health.note_leaderless(leaderless);
        self.health.note_stalled(stalled);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As librdkafka 2.12 writes them, shortened.
    const JSON: &str = r#"{ "name": "oncebox#consumer-1", "ts":5016483227792, "brokers":{
        "127.0.0.1:9092/1": { "name":"127.0.0.1:9092/1", "nodeid":1, "state":"UP", "rtt": {"min":1} },
        "GroupCoordinator": { "name":"GroupCoordinator", "nodeid":-1, "state":"UP" } },
        "topics":{ "t": { "topic":"t", "age":5, "partitions":{
            "0": { "partition":0, "broker":1, "leader":1, "fetch_state":"active", "hi_offset":7, "ls_offset":7 },
            "1": { "partition":1, "broker":-1, "leader":-1, "fetch_state":"validate-epoch-wait", "hi_offset":-1001 },
            "-1": { "partition":-1, "broker":-1, "leader":-1, "fetch_state":"none", "hi_offset":-1001 } } } },
        "cgrp": { "state": "up", "stateage": 9, "join_state": "wait-assign-call", "rebalance_cnt": 1 }, "tx":3 }"#;

    #[test]
    fn what_is_of_use_is_read() {
        let statistics = Statistics::parse(JSON.as_bytes()).expect("valid");
        assert_eq!(statistics.cgrp.expect("a group").join_state, "wait-assign-call");
        let partitions = &statistics.topics["t"].partitions;
        assert_eq!((partitions[&0].fetch_state, partitions[&0].hi_offset), (FetchState::Active, 7));
        assert_eq!((partitions[&1].fetch_state, partitions[&1].leader), (FetchState::Resting, -1));
    }
}
