//! Who is in a group, and which partitions each member has.

use rdkafka::consumer::Consumer;
use rdkafka::types::RDKafkaErrorCode;

use super::Admin;
use crate::error::Error;

/// A group, as its coordinator describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// `Stable`, `Empty`, `Dead`, `PreparingRebalance` or `CompletingRebalance`.
    pub state: String,
    /// Its members.
    pub members: Vec<Member>,
}

/// A member of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Its `client.id` and the address it comes from.
    pub name: String,
    /// Topics and partitions.
    pub partitions: Vec<(String, i32)>,
}

impl Admin {
    /// The group, or none if the cluster knows no such group, or has no way to say who is in one: the broker of the demo has none,
    /// and there is nothing that an operator could do about it.
    pub async fn group(&self, group: &str) -> Result<Option<Group>, Error> {
        let group = group.to_owned();
        self.blocking(move |admin| {
            let found = admin.client.fetch_group_list(Some(&group), admin.timeout);
            let found = match found {
                Err(e) if e.rdkafka_error_code() == Some(RDKafkaErrorCode::UnsupportedFeature) => {
                    return Ok(None);
                }
                found => found.map_err(|e| Error::request(format!("the members of group {group}"), &e))?,
            };
            let found = found.groups().iter().find(|one| one.name() == group);
            Ok(found.map(|found| Group {
                state: found.state().to_owned(),
                members: found
                    .members()
                    .iter()
                    .map(|member| Member {
                        name: format!(
                            "{}@{}",
                            member.client_id(),
                            member.client_host().trim_start_matches('/')
                        ),
                        partitions: member.assignment().and_then(assigned).unwrap_or_default(),
                    })
                    .collect(),
            }))
        })
        .await
    }
}

/// Reads an assignment as the consumer protocol writes it: a version, then for each topic its name and its partitions. `None` if
/// it is cut short.
fn assigned(bytes: &[u8]) -> Option<Vec<(String, i32)>> {
    let mut rest = bytes.get(2..)?;
    let mut assigned = Vec::new();
    for _ in 0..number(&mut rest)? {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (name, after) = after.split_at_checked(usize::try_from(i16::from_be_bytes(*length)).ok()?)?;
        rest = after;
        let topic = String::from_utf8_lossy(name).into_owned();
        for _ in 0..number(&mut rest)? {
            assigned.push((topic.clone(), number(&mut rest)?));
        }
    }
    Some(assigned)
}

fn number(rest: &mut &[u8]) -> Option<i32> {
    let (number, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(i32::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_read_and_a_broken_one_is_none() {
        let mut bytes = vec![0, 1, 0, 0, 0, 2, 0, 6];
        bytes.extend(b"orders");
        bytes.extend([0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 1]);
        bytes.extend(b"m");
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff]);
        let expected =
            [("orders", 0), ("orders", 7), ("m", 3)].map(|(topic, number)| (topic.to_owned(), number));
        assert_eq!(assigned(&bytes).as_deref(), Some(&expected[..]));
        for length in 0..bytes.len() - 4 {
            assert_eq!(assigned(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(assigned(&[0, 0, 0, 0, 0, 0]), Some(Vec::new()));
        assert_eq!(
            assigned(&[0, 0, 0x7f, 0xff, 0xff, 0xff]),
            None,
            "it does not reserve what it cannot hold"
        );
    }
}
