//! Who confirms what is written: the members of the replica set.

use mongodb::bson::{Bson, Document, doc};
use oncebox_core::store::Finding;

use super::asked;
use crate::position::whole;
use crate::store::MongoStore;

/// A member that answers, and has all data or is about to.
const GOOD_STATES: [i64; 2] = [1, 2];
/// It votes, and holds no data.
const ARBITER: i64 = 7;
/// A secondary that is further behind than this is told.
const LAG_TOLERANCE_MS: i64 = 10_000;

pub(super) async fn findings(store: &MongoStore, hello: &Document) -> Vec<Finding> {
    if !hello.contains_key("setName") {
        return Vec::new();
    }
    let mut findings = of_hello(hello);
    findings.push(match asked(store, doc! { "replSetGetStatus": 1 }).await {
        Ok(status) => of_status(&status),
        Err(why) => unknown(&why),
    });
    findings
}

fn unknown(why: &str) -> Finding {
    Finding::warning(
        "members",
        format!(
            "their health is not known, the user may not ask ({why}): grant it clusterMonitor, or look at rs.status() yourself"
        ),
    )
}

/// What every user sees.
fn of_hello(hello: &Document) -> Vec<Finding> {
    let count = |list: &str| hello.get_array(list).map_or(0, Vec::len);
    let (with_data, arbiters) = (count("hosts") + count("passives"), count("arbiters"));
    let subject = "replica set";
    if with_data == 1 {
        return vec![Finding::warning(
            subject,
            "one member: the majority is that member, so nothing takes over when it is gone, and what its disk loses is lost. \
             Good for development; add two more for production",
        )];
    }
    if arbiters > 0 {
        let detail = format!(
            "{with_data} members with data and {arbiters} that only vote: when one with data is gone, a majority may elect a \
             primary and still not confirm what is written, and messages wait. Put data on the arbiter"
        );
        return vec![Finding::warning(subject, detail)];
    }
    vec![Finding::ok(subject, format!("{with_data} members"))]
}

fn of_status(status: &Document) -> Finding {
    let members: Vec<&Document> =
        status.get_array("members").into_iter().flatten().filter_map(Bson::as_document).collect();
    let newest = members.iter().filter_map(|member| applied_ms(member)).max();
    let ill: Vec<String> = members.iter().filter_map(|member| illness(member, newest)).collect();
    if ill.is_empty() {
        return Finding::ok("members", format!("{} of {} are well", members.len(), members.len()));
    }
    Finding::warning(
        "members",
        format!(
            "{} of {} are not well: {}. What is written waits for a majority of them; look at rs.status() and at their logs",
            ill.len(),
            members.len(),
            ill.join(", ")
        ),
    )
}

fn applied_ms(member: &Document) -> Option<i64> {
    member.get_datetime("optimeDate").ok().map(|at| at.timestamp_millis())
}

fn illness(member: &Document, newest: Option<i64>) -> Option<String> {
    let name = member.get_str("name").unwrap_or("a member");
    let state = whole(member.get("state")).unwrap_or(-1);
    let is_up = whole(member.get("health")).unwrap_or(0) == 1;
    if !is_up || !(GOOD_STATES.contains(&state) || state == ARBITER) {
        return Some(format!("{name} is {}", member.get_str("stateStr").unwrap_or("in an unknown state")));
    }
    let behind = newest? - applied_ms(member).filter(|_| state != ARBITER)?;
    (behind > LAG_TOLERANCE_MS).then(|| format!("{name} is {} s behind", behind / 1000))
}

#[cfg(test)]
mod tests {
    use mongodb::bson::DateTime;
    use oncebox_core::store::FindingLevel::{Ok, Warning};

    use super::*;

    #[test]
    fn a_majority_that_cannot_be_is_told() {
        let level = |hello: Document| of_hello(&hello)[0].level;
        assert_eq!(level(doc! { "hosts": ["a"] }), Warning);
        assert_eq!(level(doc! { "hosts": ["a", "b"], "arbiters": ["c"] }), Warning);
        assert_eq!(level(doc! { "hosts": ["a", "b", "c"] }), Ok);
    }

    #[test]
    fn members_that_are_ill_are_named() {
        let member = |name: &str, state: i32, health: f64, at_ms: i64| {
            doc! { "name": name, "state": state, "stateStr": format!("STATE {state}"), "health": health,
            "optimeDate": DateTime::from_millis(at_ms) }
        };
        let of = |members: Vec<Document>| of_status(&doc! { "members": members });
        let well = of(vec![member("a", 1, 1.0, 50_000), member("b", 2, 1.0, 45_000), member("c", 7, 1.0, 0)]);
        assert_eq!(well.level, Ok, "{}", well.detail);
        let ill = of(vec![
            member("a", 1, 1.0, 50_000),
            member("b", 2, 1.0, 20_000),
            member("c", 8, 0.0, 0),
            member("d", 3, 1.0, 50_000),
        ]);
        assert_eq!(ill.level, Warning);
        for says in ["3 of 4", "b is 30 s behind", "c is STATE 8", "d is STATE 3"] {
            assert!(ill.detail.contains(says), "{}", ill.detail);
        }
    }
}
