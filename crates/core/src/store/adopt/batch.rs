//! What of a batch goes to an adopted table, and what came of it.

use std::collections::{HashMap, HashSet};

use super::{Adopt, IdKind, StoredId};
use crate::store::{Claim, Refused};

/// A receipt on its way into an adopted table.
#[derive(Debug)]
pub struct AdoptedRow<'c> {
    at: usize,
    /// The id as the column holds it.
    pub id: StoredId,
    /// Whose receipt it is.
    pub claim: &'c Claim<'c>,
}

/// What stands in the table in the place of a row that it did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Met {
    /// The receipt of the same message, byte for byte.
    Own,
    /// Another message's, and which one.
    Other(String),
}

/// The claims of a batch, sorted for an adopted table: those that the table cannot hold are refused before it sees them, and
/// of those that are one message in its eyes only the first goes there.
#[derive(Debug)]
pub struct AdoptedBatch<'c> {
    /// Distinct, in the order in which every batch writes them: two batches wait for each other instead of deadlocking.
    pub rows: Vec<AdoptedRow<'c>>,
    refused: Vec<Refused>,
    claims: usize,
}

impl<'c> AdoptedBatch<'c> {
    /// `required`: which of the further columns must not be NULL.
    #[must_use]
    pub fn new(adopt: &Adopt, id: IdKind, required: &[bool], claims: &'c [Claim<'c>]) -> Self {
        let mut batch =
            Self { rows: Vec::with_capacity(claims.len()), refused: Vec::new(), claims: claims.len() };
        let mut seen = HashSet::with_capacity(claims.len());
        for (at, claim) in claims.iter().enumerate() {
            match fitting(adopt, id, required, claim) {
                // The second spelling of a UUID is a copy of the first.
                Ok(id) if seen.insert((id.clone(), claim.tenant)) => {
                    batch.rows.push(AdoptedRow { at, id, claim });
                }
                Ok(_) => {}
                Err(why) => batch.refuse(at, &why, adopt),
            }
        }
        batch.rows.sort_unstable_by(|a, b| (&a.id, a.claim.tenant).cmp(&(&b.id, b.claim.tenant)));
        batch
    }

    fn refuse(&mut self, at: usize, why: &str, adopt: &Adopt) {
        let why = format!("{why} ({adopt}.{}); it was not applied", adopt.message_id_column());
        self.refused.push(Refused { at, why });
    }

    /// The rows that the table did not take, by their place: it has them already, or what it holds to be the same.
    #[must_use]
    pub fn known(&self, written: &HashSet<(StoredId, String)>) -> Vec<usize> {
        (0..self.rows.len()).filter(|place| !is_in(&self.rows[*place], written)).collect()
    }

    /// The answer to the claim. `written`: ids and tenants that the table took. `met`: for the other rows, by their place in
    /// [`AdoptedBatch::rows`], what is there instead.
    ///
    /// # Errors
    /// If the table took something that was not sent, or neither took a row nor has it: it changes or drops what is written
    /// into it. Only a receipt that was seen makes a message a copy.
    pub fn answer(
        mut self,
        adopt: &Adopt,
        written: &HashSet<(StoredId, String)>,
        met: &HashMap<usize, Met>,
    ) -> Result<(Vec<bool>, Vec<Refused>), String> {
        let mut fresh = vec![false; self.claims];
        let mut taken = 0;
        for (place, row) in self.rows.iter().enumerate() {
            if is_in(row, written) {
                fresh[row.at] = true;
                taken += 1;
            } else if !met.contains_key(&place) {
                return Err(format!(
                    "{adopt} neither took nor has the receipt of message {:?}, so nobody can tell whether it was applied: \
                     look for a trigger or a rule that drops what is written, or for somebody who has just removed it",
                    row.claim.message_id
                ));
            }
        }
        if taken != written.len() {
            return Err(format!(
                "{adopt} does not keep ids or tenants as they are written, so copies could not be recognised: look for a \
                 trigger, or for a type that changes them"
            ));
        }
        for (place, met) in met {
            let Met::Other(other) = met else { continue };
            let row = &self.rows[*place];
            let why = format!(
                "the table takes the message {:?} of tenant {:?} for the same as {other}, which it holds already; \
                 that is another message",
                row.claim.message_id, row.claim.tenant
            );
            let at = row.at;
            self.refuse(at, &why, adopt);
        }
        self.refused.sort_by_key(|refused| refused.at);
        Ok((fresh, self.refused))
    }
}

fn is_in(row: &AdoptedRow<'_>, written: &HashSet<(StoredId, String)>) -> bool {
    // A tenant that has no column is empty, or its message was refused.
    !written.is_empty() && written.contains(&(row.id.clone(), row.claim.tenant.to_owned()))
}

fn fitting(adopt: &Adopt, id: IdKind, required: &[bool], claim: &Claim<'_>) -> Result<StoredId, String> {
    if !claim.tenant.is_empty() && adopt.tenant_column().is_none() {
        return Err(format!(
            "the message belongs to tenant {:?}, and the table has no column for tenants",
            claim.tenant
        ));
    }
    let columns = adopt.set_columns().zip(required).zip(claim.set);
    if let Some(((column, selector), _)) =
        columns.filter(|((_, required), value)| **required && value.is_none()).map(|(left, _)| left).next()
    {
        return Err(format!(
            "the column {column} must not be NULL, and the message has nothing at {selector}"
        ));
    }
    id.stored(claim.message_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::{ReceiptKey, Selector};

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn claim<'a>(tenant: &'a str, message_id: &'a str, set: &'a [Option<String>]) -> Claim<'a> {
        Claim { key: ReceiptKey::from([0; 16]), tenant, message_id, set, fingerprint: None }
    }

    #[test]
    fn the_second_spelling_is_a_copy_and_what_does_not_fit_is_refused() {
        let adopt = Adopt::table("inbox", "event_id").unwrap();
        let upper = ID.to_uppercase();
        let claims =
            [claim("", &upper, &[]), claim("", "order-1", &[]), claim("", ID, &[]), claim("acme", ID, &[])];
        let batch = AdoptedBatch::new(&adopt, IdKind::Uuid, &[], &claims);
        assert_eq!(batch.rows.len(), 1);
        let written = HashSet::from([(batch.rows[0].id.clone(), String::new())]);
        assert_eq!(batch.known(&written), [0; 0]);
        let (fresh, refused) = batch.answer(&adopt, &written, &HashMap::new()).unwrap();
        assert_eq!(fresh, [true, false, false, false]);
        assert_eq!(refused.iter().map(|one| one.at).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn rows_are_sorted_and_others_are_told() {
        let adopt = Adopt::table("inbox", "id").unwrap();
        let kind = IdKind::Text { max_chars: None, padded: false };
        let claims = [claim("", "b", &[]), claim("", "a", &[])];
        let batch = AdoptedBatch::new(&adopt, kind, &[], &claims);
        assert_eq!(batch.rows[0].claim.message_id, "a");
        let others = HashMap::from([(0, Met::Other("\"A\"".to_owned()))]);
        let written = HashSet::from([(batch.rows[1].id.clone(), String::new())]);
        let (fresh, refused) = batch.answer(&adopt, &written, &others).unwrap();
        assert_eq!((fresh, refused[0].at), (vec![true, false], 1));
    }

    #[test]
    fn a_table_that_changes_ids_is_an_error() {
        let adopt = Adopt::table("inbox", "id").unwrap();
        let claims = [claim("", "a", &[])];
        let kind = IdKind::Text { max_chars: None, padded: false };
        let written = HashSet::from([(StoredId::Text("A".to_owned()), String::new())]);
        assert!(
            AdoptedBatch::new(&adopt, kind, &[], &claims).answer(&adopt, &written, &HashMap::new()).is_err()
        );
    }

    #[test]
    fn only_a_receipt_that_was_seen_makes_a_copy() {
        let adopt = Adopt::table("inbox", "id").unwrap();
        let claims = [claim("", "a", &[])];
        let kind = IdKind::Text { max_chars: None, padded: false };
        let batch = || AdoptedBatch::new(&adopt, kind, &[], &claims);
        let own = HashMap::from([(0, Met::Own)]);
        assert_eq!(batch().answer(&adopt, &HashSet::new(), &own), Ok((vec![false], Vec::new())));
        assert!(batch().answer(&adopt, &HashSet::new(), &HashMap::new()).is_err());
    }

    #[test]
    fn a_column_that_must_not_be_null_needs_its_value() {
        let adopt = Adopt::table("inbox", "id").unwrap().set("kind", Selector::Key).unwrap();
        let kind = IdKind::Text { max_chars: None, padded: false };
        let (none, some) = ([None], [Some("x".to_owned())]);
        let claims = [claim("", "a", &none), claim("", "b", &some)];
        assert_eq!(AdoptedBatch::new(&adopt, kind, &[true], &claims).refused.len(), 1);
        assert_eq!(AdoptedBatch::new(&adopt, kind, &[false], &claims).rows.len(), 2);
    }
}
