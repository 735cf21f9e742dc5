//! What the user may do, as far as its privileges tell.

use mongodb::bson::{Bson, Document, doc};
use oncebox_core::store::{Adopt, Finding};

use super::asked;
use crate::claim::INBOX;
use crate::store::MongoStore;

/// What a batch does with a collection.
const WORK: [&str; 4] = ["find", "insert", "update", "remove"];
/// What `oncebox migrate` does.
const MAKE: [&str; 2] = ["createCollection", "createIndex"];

pub(super) async fn findings(store: &MongoStore) -> Vec<Finding> {
    match privileges(store).await {
        Ok(privileges) => of_privileges(&privileges, store.inner.aside.name()),
        Err(why) => vec![Finding::warning(
            "rights",
            format!("not known, the server did not tell ({why}). The user needs readWrite on the database"),
        )],
    }
}

/// What an adopted collection needs and the user may not do, as far as its privileges tell.
pub(crate) async fn missing_rights(store: &MongoStore, adopt: &Adopt) -> Vec<String> {
    let Ok(Some(privileges)) = privileges(store).await else { return Vec::new() };
    let needed = if adopt.processed_at_column().is_some() { &WORK[..] } else { &WORK[..2] };
    let database = adopt.schema().unwrap_or(store.inner.aside.name());
    let missing = missing(&privileges, database, adopt.table_name(), needed);
    missing.into_iter().map(str::to_owned).collect()
}

/// What the user may do. `None`: the server does not ask who somebody is.
async fn privileges(store: &MongoStore) -> Result<Option<Vec<Document>>, String> {
    let status = asked(store, doc! { "connectionStatus": 1, "showPrivileges": true }).await?;
    let auth = status.get_document("authInfo").map_err(|error| error.to_string())?;
    if auth.get_array("authenticatedUsers").is_ok_and(Vec::is_empty) {
        return Ok(None);
    }
    let privileges = auth.get_array("authenticatedUserPrivileges").map_err(|error| error.to_string())?;
    Ok(Some(privileges.iter().filter_map(Bson::as_document).cloned().collect()))
}

fn of_privileges(privileges: &Option<Vec<Document>>, database: &str) -> Vec<Finding> {
    let Some(privileges) = privileges else {
        return vec![Finding::warning(
            "rights",
            "the server lets everybody in: turn authorization on, and make a user with readWrite on the database",
        )];
    };
    let missing = missing(privileges, database, INBOX, &WORK);
    if !missing.is_empty() {
        return vec![Finding::error(
            "rights",
            format!("the user may not {} in {database}: grant it readWrite there", missing.join(", ")),
        )];
    }
    let missing = self::missing(privileges, database, INBOX, &MAKE);
    vec![if missing.is_empty() {
        Finding::ok("rights", "may read, write and make collections")
    } else {
        Finding::ok(
            "rights",
            "may read and write. `oncebox migrate` needs a user that may make collections and indexes, such as one with \
             readWrite and dbAdmin",
        )
    }]
}

/// What of this the user may not do with a collection.
fn missing<'a>(
    privileges: &[Document],
    database: &str,
    collection: &str,
    needed: &[&'a str],
) -> Vec<&'a str> {
    let may = |action: &str| {
        let granted = |privilege: &&Document| {
            let actions = privilege.get_array("actions");
            actions.is_ok_and(|actions| actions.iter().any(|granted| granted.as_str() == Some(action)))
        };
        privileges.iter().filter(granted).any(|privilege| covers(privilege, database, collection))
    };
    needed.iter().copied().filter(|action| !may(action)).collect()
}

/// Whether a privilege holds for a collection. An empty name stands for all.
fn covers(privilege: &Document, database: &str, collection: &str) -> bool {
    let Ok(resource) = privilege.get_document("resource") else { return false };
    let fits = |field: &str, name: &str| {
        resource.get_str(field).is_ok_and(|granted| granted.is_empty() || granted == name)
    };
    resource.get_bool("anyResource").unwrap_or(false)
        || (fits("db", database) && fits("collection", collection))
}

#[cfg(test)]
mod tests {
    use oncebox_core::store::FindingLevel::{Error, Ok, Warning};

    use super::*;

    fn level(privileges: &[Document]) -> oncebox_core::store::FindingLevel {
        of_privileges(&Some(privileges.to_vec()), "shop")[0].level
    }

    #[test]
    fn rights_count_where_they_hold() {
        let on = |db: &str, collection: &str, actions: &[&str]| {
            doc! { "resource": { "db": db, "collection": collection }, "actions": actions }
        };
        assert_eq!(level(&[on("shop", "", &WORK)]), Ok);
        assert_eq!(level(&[on("", "", &WORK)]), Ok);
        assert_eq!(level(&[on("shop", INBOX, &WORK)]), Ok);
        assert_eq!(level(&[on("shop", "orders", &WORK)]), Error);
        assert_eq!(level(&[on("other", "", &WORK)]), Error);
        assert_eq!(level(&[on("shop", "", &WORK[..2]), on("shop", "", &WORK[2..])]), Ok);
        let any = doc! { "resource": { "anyResource": true }, "actions": WORK.to_vec() };
        assert_eq!(level(&[any]), Ok);
        assert_eq!(of_privileges(&None, "shop")[0].level, Warning);
        let reader = of_privileges(&Some(vec![on("shop", "", &["find"])]), "shop");
        assert!(reader[0].detail.contains("may not insert, update, remove in shop"), "{}", reader[0].detail);
    }
}
