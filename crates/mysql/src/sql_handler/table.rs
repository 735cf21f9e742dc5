//! The messages as a table, out of one JSON text.

use oncebox_sql::{Param, PayloadKind};

use super::values::Wanted;

/// Text is compared byte by byte. Two texts of different collations are an error (1267) unless one of them is this one.
const TEXT: &str = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

/// The type of a parameter inside a routine. The lengths of ids and tenants are those that oncebox allows.
pub(super) fn type_of(param: Param, payload: PayloadKind) -> String {
    match (param, payload) {
        (Param::Payload, PayloadKind::Bytes) => "LONGBLOB".to_owned(),
        (Param::Timestamp, _) => "DATETIME(3)".to_owned(),
        _ => transported(param),
    }
}

/// The type of what is in the JSON.
fn transported(param: Param) -> String {
    match param {
        Param::Id => format!("VARCHAR(512) {TEXT}"),
        Param::Tenant => format!("VARCHAR(256) {TEXT}"),
        Param::Key | Param::Payload | Param::Headers | Param::Topic => format!("LONGTEXT {TEXT}"),
        Param::Partition => "INT".to_owned(),
        Param::Offset | Param::Timestamp => "BIGINT".to_owned(),
    }
}

/// The value of a parameter, of what is in the JSON.
fn value(param: Param, payload: PayloadKind) -> String {
    let column = format!("oncebox_p_table.`{}`", param.name());
    match (param, payload) {
        // Of a text without a limit MariaDB takes the result for an empty one wherever it has to sort.
        (Param::Payload, PayloadKind::Bytes) => format!("UNHEX(LEFT({column}, 1000000000))"),
        (Param::Timestamp, _) => {
            format!(
                "CAST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {column} * 1000 MICROSECOND AS DATETIME(3))"
            )
        }
        _ => column,
    }
}

/// `JSON_TABLE(…) AS oncebox_p_table` over the JSON that `json` names, with the values that are sent and `oncebox_p_place`.
fn json_table(json: &str, wanted: &Wanted) -> String {
    let mut table = format!("JSON_TABLE({json}, '$[*]' COLUMNS (oncebox_p_place FOR ORDINALITY");
    for (at, param) in wanted.used.iter().enumerate() {
        table.push_str(&format!(", `{}` {} PATH '$[{at}]'", param.name(), transported(*param)));
    }
    table.push_str(")) AS oncebox_p_table");
    table
}

/// The query of the cursor: the messages in their order, with the values that are used in theirs.
pub(super) fn in_order(json: &str, wanted: &Wanted) -> String {
    let values: Vec<_> = wanted.used.iter().map(|param| value(*param, wanted.payload)).collect();
    format!("SELECT {} FROM {} ORDER BY oncebox_p_place", values.join(", "), json_table(json, wanted))
}

/// The relation `messages`, without its name. What is not sent is NULL.
pub(super) fn relation(json: &str, wanted: &Wanted) -> String {
    let columns = Param::ALL.map(|param| match wanted.used.contains(&param) {
        true => format!("{} AS `{}`", value(param, wanted.payload), param.name()),
        false => format!("NULL AS `{}`", param.name()),
    });
    format!("(SELECT {} FROM {})", columns.join(", "), json_table(json, wanted))
}
