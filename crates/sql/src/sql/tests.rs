#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::RowRule;

fn postgres(sql: &str) -> String {
    Sql::parse(sql).unwrap().render(|param| format!("${}", param.index()))
}

fn refusal(sql: &str) -> StatementError {
    Sql::parse(sql).unwrap_err()
}

#[test]
fn parameters_become_placeholders() {
    for (sql, rendered) in [
        ("SELECT :id", "SELECT $1"),
        ("SELECT (:payload->>'qty')::int", "SELECT ($3->>'qty')::int"),
        ("SELECT :payload::jsonb", "SELECT $3::jsonb"),
        ("SELECT f(:key,:tenant)+:offset", "SELECT f($2,$9)+$7"),
        ("SELECT a[1:2], a[:id], a[ : 3]", "SELECT a[1:2], a[$1], a[ : 3]"),
        ("SELECT f(a := :id)", "SELECT f(a := $1)"),
        // PostgreSQL would read `SELECT$1` as one name.
        ("SELECT:id", "SELECT $1"),
        ("SELECT :id, :id", "SELECT $1, $1"),
        ("SELECT :id; -- done\n ; ", "SELECT $1"),
        ("SELECT payload ? 'a' AND :key @> x", "SELECT payload ? 'a' AND $2 @> x"),
    ] {
        assert_eq!(postgres(sql), rendered);
    }
    let sqlite = Sql::parse("SELECT :topic, :id").unwrap();
    assert_eq!(sqlite.render(|param| format!("?{}", param.index())), "SELECT ?5, ?1");
    assert_eq!(sqlite.params(), BTreeSet::from([Param::Id, Param::Topic]));
}

#[test]
fn what_only_looks_like_a_parameter_is_left_alone() {
    for sql in [
        "SELECT 'a :id b'",
        "SELECT 'it''s :id'",
        r"SELECT '\', ':id'",
        r"SELECT E'it\'s :id'",
        r"SELECT e'\\', ':id'",
        "SELECT E'a'\n  'b\\' :id'",
        "SELECT \"a:id\"\"b:id\"",
        "SELECT `a:id`",
        "SELECT 1 -- :id ' \" $$",
        "SELECT 1 /* :id /* nested ' */ :foo */ + 2",
        "SELECT $$ :id ; ' $$",
        "SELECT $x$ :id $$ $y$ ; $x$",
        "SELECT a::id::text",
        "SELECT name$x$ + 1, 'y'",
        "SELECT x'1F', U&':id', N':id'",
        "SELECT 1:2, a : id",
    ] {
        let statement = Sql::parse(sql).unwrap();
        assert!(statement.params().is_empty(), "{sql}");
        assert_eq!(statement.render(|_| unreachable!()), sql);
    }
    // The backslash means nothing in a plain string, so this one ends before `:id`.
    assert_eq!(postgres(r"SELECT 'a\' || :id"), r"SELECT 'a\' || $1");
    assert_eq!(postgres("SELECT E'a' 'b\\' || :id"), "SELECT E'a' 'b\\' || $1");
}

#[test]
fn unknown_parameters_are_named_with_their_place() {
    let error = refusal("SELECT :paylod");
    assert_eq!(error.offset(), 7);
    assert_eq!(
        error.to_string(),
        "there is no parameter `:paylod`; did you mean `:payload`? There are \
         :id :key :payload :headers :topic :partition :offset :timestamp :tenant"
    );
    assert!(refusal("SELECT :ID").to_string().contains("did you mean `:id`"));
    assert!(!refusal("SELECT :customer_number").to_string().contains("did you mean"));
    assert!(matches!(refusal("SELECT :id$x"), StatementError::UnknownParam { .. }));
    for (sql, text) in [("SELECT $1", "$1"), ("SELECT $name", "$name")] {
        assert_eq!(refusal(sql), StatementError::Positional { text: text.into(), offset: 7 });
    }
}

#[test]
fn what_is_not_closed_is_refused() {
    for sql in [
        "SELECT 'a",
        "SELECT \"a",
        "SELECT `a",
        "SELECT /* /* */",
        "SELECT $x$ $$",
        r"SELECT E'\'",
        "SELECT ''''' ",
    ] {
        assert!(matches!(refusal(sql), StatementError::Unterminated { offset: 7, .. }), "{sql}");
    }
}

#[test]
fn one_statement_and_no_transaction_control() {
    for sql in ["", "  ", "-- only a comment", ";", "/* x */ ; "] {
        assert_eq!(refusal(sql), StatementError::Empty);
    }
    assert_eq!(refusal("SELECT 1; SELECT 2"), StatementError::SecondStatement { offset: 10 });
    for (sql, keyword) in [
        ("COMMIT", "COMMIT"),
        ("/* x */ commit;", "COMMIT"),
        ("rollback to a", "ROLLBACK"),
        ("begin", "BEGIN"),
        ("Start /* */ transaction", "START TRANSACTION"),
        ("savepoint a", "SAVEPOINT"),
        ("release a", "RELEASE"),
        ("end", "END"),
        ("abort", "ABORT"),
        ("prepare transaction 'x'", "PREPARE TRANSACTION"),
        ("vacuum", "VACUUM"),
        ("copy t from stdin", "COPY"),
        ("attach 'x' as y", "ATTACH"),
    ] {
        let error = refusal(sql).to_string();
        assert!(
            error.starts_with(&format!("{keyword} is refused"))
                && error.contains("inside oncebox's transaction; remove it"),
            "{error}"
        );
    }
    assert_eq!(Sql::parse("with x as (select 1) select 2").unwrap().first_keyword(), "WITH");
    assert_eq!(Sql::parse("(select commit from t)").unwrap().first_keyword(), "SELECT");
}

#[test]
fn batch_statements_use_the_relation_instead_of_parameters() {
    let refusal = |sql| Sql::parse_batch(sql).unwrap_err();
    assert_eq!(
        refusal("INSERT INTO t SELECT :id FROM messages"),
        StatementError::ParamInBatch { name: "id".into(), offset: 21 }
    );
    assert!(refusal("SELECT :foo FROM messages").to_string().contains("messages.payload"));
    for sql in ["UPDATE t SET a = 1", "SELECT 'messages'", "SELECT 1 -- messages"] {
        assert_eq!(refusal(sql), StatementError::WithoutMessages);
    }
    for sql in
        ["INSERT INTO t SELECT id FROM Messages;", "SELECT * FROM \"messages\" m", "SELECT 1 FROM `messages`"]
    {
        Sql::parse_batch(sql).unwrap();
    }
}

#[test]
fn update_from_messages_without_grouping_is_warned_about() {
    let warned = |sql| !Sql::parse_batch(sql).unwrap().warnings().is_empty();
    for sql in [
        "UPDATE stock s SET n = n - 1 FROM messages m WHERE m.key = s.sku",
        "UPDATE stock s SET n = n - 1 FROM sku k JOIN messages m ON m.key = k.key WHERE k.id = s.id",
        "UPDATE stock SET n = n - m.q FROM (SELECT key, payload->'q' q FROM messages) m WHERE m.key = sku",
        "WITH m AS (SELECT * FROM messages) UPDATE stock SET n = n - 1 FROM m WHERE m.key = sku",
        "WITH u AS (UPDATE stock SET n = 1 FROM messages m WHERE m.key = sku RETURNING *) SELECT * FROM u",
        "UPDATE stock s SET n = n - 1 FROM messages m WHERE m.key IS DISTINCT FROM s.sku",
        "UPDATE stock s JOIN messages m ON m.key = s.sku SET s.n = s.n - 1",
        "UPDATE stock s, `messages` m SET s.n = s.n - 1 WHERE m.key = s.sku",
    ] {
        assert!(warned(sql), "{sql}");
    }
    for sql in [
        "UPDATE stock SET n = n - m.q FROM (SELECT key, sum(q) q FROM messages GROUP BY key) m WHERE m.key = sku",
        "UPDATE stock SET seen = true FROM (SELECT DISTINCT key FROM messages) m WHERE m.key = sku",
        "UPDATE stock SET n = (SELECT count(*) FROM messages WHERE key = sku) WHERE n IS DISTINCT FROM 1",
        "UPDATE stock SET seen = true WHERE sku IN (SELECT key FROM messages)",
        "UPDATE stock JOIN (SELECT key, sum(q) q FROM messages GROUP BY key) m ON m.key = sku SET n = n - m.q",
        "INSERT INTO t SELECT id FROM messages ON DUPLICATE KEY UPDATE n = 1",
        "INSERT INTO t SELECT id FROM messages ON CONFLICT (id) DO UPDATE SET n = 1",
        "SELECT * FROM stock FOR UPDATE OF stock, messages",
    ] {
        assert!(!warned(sql), "{sql}");
    }
    let each = Sql::parse("UPDATE t SET a = 1 FROM messages").unwrap();
    assert_eq!(each.warnings(), Vec::<String>::new());
}

#[test]
fn rules_about_rows() {
    for (text, allowed, refused, shown) in [
        ("1", 1, 0, "1"),
        ("1..", u64::MAX, 0, "1.."),
        ("..5", 0, 6, "..5"),
        (" 1 .. 3 ", 3, 4, "1..3"),
        ("2..2", 2, 1, "2"),
    ] {
        let rule: RowRule = text.parse().unwrap();
        assert!(rule.allows(allowed) && !rule.allows(refused), "{text}");
        assert_eq!(rule.to_string(), shown);
    }
    for text in ["", "..", "a", "1...3", "-1", "+1", "1..=3", "3..1", "1.5", "99999999999999999999"] {
        assert!(text.parse::<RowRule>().is_err(), "{text}");
    }
}

#[test]
fn indexes_are_places_in_the_list() {
    for (at, param) in Param::ALL.into_iter().enumerate() {
        assert_eq!(param.index(), at + 1);
        assert_eq!(Param::from_name(param.name()), Some(param));
    }
}

/// Pieces of SQL with whether they are the parameter `:id`. Each stands for itself wherever it is put.
fn piece() -> impl Strategy<Value = (String, bool)> {
    let quiet = prop_oneof![
        Just("a::id".to_owned()),
        Just("x := 1".to_owned()),
        "[a-z_]{1,6}",
        "[0-9]{1,4}",
        "[-+=<>,()\\[\\]|#~]",
        "[^'\\\\]{0,6}:id[^'\\\\]{0,6}".prop_map(|inner| format!("'{inner}'")),
        "[^'\\\\]{0,6}:id".prop_map(|inner| format!("E'{inner}\\'{inner}'''")),
        "[^\"]{0,6}:id".prop_map(|inner| format!("\"{inner}\"")),
        "[^\r\n]{0,6}:id[^\r\n]{0,6}".prop_map(|inner| format!("--{inner}\n")),
        "[^*/]{0,6}:id[^*/]{0,6}".prop_map(|inner| format!("/*{inner}/*{inner}*/;*/")),
        "[^$]{0,6}:id;[^$]{0,6}".prop_map(|inner| format!("$t${inner}$$'$t$")),
    ];
    prop_oneof![3 => quiet.prop_map(|text| (text, false)), 1 => Just((":id".to_owned(), true))]
}

proptest! {
    #[test]
    fn only_parameters_are_parameters(pieces in prop::collection::vec(piece(), 0..12)) {
        let (texts, is_param): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
        let sql = format!("SELECT {}", texts.join(" "));
        let statement = Sql::parse(&sql).unwrap();
        let mut count = 0;
        let back = statement.render(|param| {
            count += 1;
            param.to_string()
        });
        prop_assert_eq!(&back, &sql);
        prop_assert_eq!(statement.source(), &sql);
        prop_assert_eq!(count, is_param.iter().filter(|param| **param).count());
    }

    #[test]
    fn any_text_is_read_or_refused(sql in "([ -~]|\n|é|'|\"|\\$|:|;|/\\*|\\*/|--|E'|:id|\\$a\\$){0,40}") {
        match Sql::parse(&sql) {
            Ok(statement) => {
                prop_assert!(sql.starts_with(statement.source()));
                prop_assert_eq!(statement.render(|param| param.to_string()), statement.source());
            }
            Err(error) => prop_assert!(error.offset() <= sql.len() && sql.is_char_boundary(error.offset())),
        }
        if let Ok(batch) = Sql::parse_batch(&format!("update t set a = 1 from messages {sql}")) {
            prop_assert!(batch.warnings().len() <= 1);
        }
    }
}
