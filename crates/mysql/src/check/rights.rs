//! What the user may do, as far as its grants tell. What a role grants is not always shown, so nothing is missed then.

use oncebox_core::store::{Adopt, Finding};
use sqlx::{MySqlConnection, Row};

pub(super) async fn findings(conn: &mut MySqlConnection) -> sqlx::Result<Vec<Finding>> {
    let database: Option<String> =
        sqlx::query("SELECT DATABASE()").fetch_one(&mut *conn).await?.try_get(0)?;
    let rows = sqlx::raw_sql("SHOW GRANTS").fetch_all(conn).await?;
    let grants: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?;
    Ok(of_grants(&grants, &database.unwrap_or_default()))
}

/// What an adopted table needs and the user may not do, as far as its grants tell. Rights on columns are taken for rights.
pub(crate) async fn missing_rights(conn: &mut MySqlConnection, adopt: &Adopt) -> sqlx::Result<Vec<String>> {
    let database: Option<String> =
        sqlx::query("SELECT DATABASE()").fetch_one(&mut *conn).await?.try_get(0)?;
    let rows = sqlx::raw_sql("SHOW GRANTS").fetch_all(conn).await?;
    let grants: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?;
    let database = adopt.schema().map(str::to_owned).or(database).unwrap_or_default();
    let timed = adopt.processed_at_column().is_some();
    let needed = ["SELECT", "INSERT"].into_iter().chain(["UPDATE", "DELETE"].into_iter().filter(|_| timed));
    Ok(missing(&grants, &database, adopt.table_name(), needed))
}

fn missing<'r>(
    grants: &[String],
    database: &str,
    table: &str,
    needed: impl Iterator<Item = &'r str>,
) -> Vec<String> {
    let grants: Vec<Grant> = grants.iter().filter_map(|line| Grant::read(line)).collect();
    if grants.iter().any(|grant| grant.on.is_none()) {
        return Vec::new();
    }
    let on_table = format!("`{database}`.`{table}`");
    let covers = |grant: &Grant| {
        let exact = grant.on.as_ref().is_some_and(|on| on.eq_ignore_ascii_case(&on_table));
        exact || grant.covers(database)
    };
    let has = |right: &str| grants.iter().any(|grant| covers(grant) && grant.may(right));
    needed.filter(|right| !has(right)).map(str::to_owned).collect()
}

/// Rights that let a user write to a server that is read-only.
const PAST_READ_ONLY: [&str; 4] = ["SUPER", "READ_ONLY ADMIN", "READ ONLY ADMIN", "CONNECTION_ADMIN"];

fn of_grants(grants: &[String], database: &str) -> Vec<Finding> {
    let grants: Vec<Grant> = grants.iter().filter_map(|line| Grant::read(line)).collect();
    let mut findings = Vec::new();
    let routines = |grant: &Grant| grant.covers(database) && grant.has("CREATE ROUTINE");
    if grants.iter().any(routines) {
        findings.push(Finding::ok("routines", "may be created"));
    } else if !grants.iter().any(|grant| grant.on.is_none()) {
        findings.push(Finding::warning(
            "routines",
            format!(
                "may not be created: `oncebox migrate` needs that, and on MySQL handlers in SQL run on a slower path without it. \
                 GRANT CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON `{database}`.* TO …"
            ),
        ));
    }
    if grants.iter().any(|grant| {
        grant.on.as_deref() == Some("*.*") && PAST_READ_ONLY.iter().any(|right| grant.has(right))
    }) {
        findings.push(Finding::warning(
            "user",
            "may write to a server that is read-only, so a primary that was demoted would still take messages. Use a user \
             without SUPER, CONNECTION_ADMIN and READ_ONLY ADMIN",
        ));
    }
    findings
}

/// A line of SHOW GRANTS: the rights, and where they hold. A role holds nowhere.
struct Grant {
    rights: Vec<String>,
    on: Option<String>,
}

impl Grant {
    fn read(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("GRANT ")?;
        let (rights, on) = match rest.split_once(" ON ") {
            Some((rights, rest)) => (rights, Some(rest.split(" TO ").next()?.to_owned())),
            None => (rest.split(" TO ").next()?, None),
        };
        Some(Self { rights: rights.split(',').map(|right| right.trim().to_owned()).collect(), on })
    }

    fn has(&self, right: &str) -> bool {
        self.rights.iter().any(|has| has == right || has == "ALL PRIVILEGES")
    }

    /// The same, or on some columns: `SELECT (id)`.
    fn may(&self, right: &str) -> bool {
        self.has(right) || self.rights.iter().any(|has| has.starts_with(right))
    }

    /// Whether it holds in the whole database. A name with a wildcard is taken for a match.
    fn covers(&self, database: &str) -> bool {
        let Some(on) = &self.on else { return false };
        let of = on.strip_suffix(".*").unwrap_or_default().trim_matches('`').replace('\\', "");
        let fits = |(one, other): (u8, u8)| one == b'_' || one.eq_ignore_ascii_case(&other);
        let same = of.len() == database.len() && of.bytes().zip(database.bytes()).all(fits);
        of == "*" || of.contains('%') || same
    }
}

#[cfg(test)]
mod tests {
    use oncebox_core::store::FindingLevel::{Ok, Warning};

    use super::*;

    fn found(grants: &[&str]) -> Vec<(String, oncebox_core::store::FindingLevel)> {
        let grants: Vec<String> = grants.iter().map(|grant| (*grant).to_owned()).collect();
        of_grants(&grants, "shop_one").into_iter().map(|finding| (finding.subject, finding.level)).collect()
    }

    #[test]
    fn routines_need_a_right_in_the_database() {
        let routines = |level| vec![("routines".to_owned(), level)];
        let usage = "GRANT USAGE ON *.* TO `erp`@`%`";
        let all = "GRANT ALL PRIVILEGES ON `shop\\_one`.* TO `erp`@`%`";
        assert_eq!(found(&[usage, all]), routines(Ok));
        assert_eq!(found(&["GRANT SELECT, CREATE ROUTINE ON `shop_one`.* TO `erp`@`%`"]), routines(Ok));
        assert_eq!(found(&["GRANT CREATE ROUTINE ON `shop%`.* TO `erp`@`%`"]), routines(Ok));
        assert_eq!(found(&["GRANT CREATE ROUTINE ON `other`.* TO `erp`@`%`"]), routines(Warning));
        assert_eq!(found(&[usage, "GRANT SELECT, INSERT ON `shop_one`.* TO `erp`@`%`"]), routines(Warning));
    }

    #[test]
    fn rights_on_an_adopted_table_are_told() {
        let missing = |grants: &[&str]| {
            let grants: Vec<String> = grants.iter().map(|grant| (*grant).to_owned()).collect();
            missing(&grants, "shop", "inbox", ["SELECT", "INSERT", "UPDATE", "DELETE"].into_iter())
        };
        assert_eq!(missing(&["GRANT ALL PRIVILEGES ON `shop`.* TO `erp`@`%`"]), [""; 0]);
        let table = "GRANT SELECT, INSERT (`id`) ON `shop`.`inbox` TO `erp`@`%`";
        assert_eq!(missing(&["GRANT USAGE ON *.* TO `erp`@`%`", table]), ["UPDATE", "DELETE"]);
        assert_eq!(missing(&["GRANT `writer`@`%` TO `erp`@`%`"]), [""; 0]);
        assert_eq!(missing(&["GRANT ALL PRIVILEGES ON `sho_`.* TO `erp`@`%`"]), [""; 0]);
        assert_eq!(missing(&["GRANT ALL PRIVILEGES ON `shoe`.* TO `erp`@`%`"]).len(), 4);
    }

    #[test]
    fn what_a_role_grants_is_not_missed() {
        assert_eq!(found(&["GRANT USAGE ON *.* TO `erp`@`%`", "GRANT `writer`@`%` TO `erp`@`%`"]), []);
    }

    #[test]
    fn a_user_that_writes_to_a_demoted_primary_is_told() {
        let user = ("user".to_owned(), Warning);
        assert!(
            found(&["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"]).contains(&user)
        );
        assert!(found(&["GRANT SELECT, READ_ONLY ADMIN ON *.* TO `erp`@`%`"]).contains(&user));
        assert!(!found(&["GRANT ALL PRIVILEGES ON `shop_one`.* TO `erp`@`%`"]).contains(&user));
    }
}
