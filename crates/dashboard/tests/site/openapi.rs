//! The description of the API against what the server answers.

use serde_json::Value;

use crate::asked::Site;
use crate::fake::Fake;

/// What is wrong with a value, if anything is: the parts of JSON Schema that the description uses, and no others.
fn mismatch(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        return mismatch(document, target.unwrap_or_else(|| panic!("{reference}")), value, at);
    }
    if let Some(any) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        let fits = any.iter().any(|one| mismatch(document, one, value, at).is_none());
        return (!fits).then(|| format!("{at}: {value} fits none of {any:?}"));
    }
    if let Some(constant) = schema.get("const") {
        return (constant != value).then(|| format!("{at}: {value} is not {constant}"));
    }
    if let Some(words) = schema["enum"].as_array() {
        return (!words.contains(value)).then(|| format!("{at}: {value} is none of {words:?}"));
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return Some(format!("{at}: the description says nothing of it: {schema}")),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = kinds.contains(&kind) || kind == "integer" && kinds.contains(&"number");
    if !fits {
        return Some(format!("{at}: {value} is no {kinds:?}"));
    }
    if let Some(items) = value.as_array() {
        let mut items = items.iter().enumerate();
        return items
            .find_map(|(nth, item)| mismatch(document, &schema["items"], item, &format!("{at}[{nth}]")));
    }
    let object = value.as_object()?;
    let missing = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(name) = missing.into_iter().find(|name| !object.contains_key(*name)) {
        return Some(format!("{at}: {name} is missing"));
    }
    object.iter().find_map(|(name, value)| match schema["properties"].get(name) {
        Some(schema) => mismatch(document, schema, value, &format!("{at}.{name}")),
        None => Some(format!("{at}: {name} is not described")),
    })
}

fn answer<'d>(document: &'d Value, path: &str, method: &str) -> &'d Value {
    let content = &document["paths"][path][method]["responses"]["200"]["content"];
    &content.as_object().unwrap().values().next().unwrap()["schema"]
}

#[tokio::test]
async fn every_answer_is_as_it_is_described() {
    let site = Site::local(Fake::busy());
    let document = site.get("/api/v1/openapi.json").await.is(200).json();
    assert_eq!(document, oncebox_dashboard::openapi());
    site.post("/api/v1/actions/purge", &[], "{\"dry_run\": true}").await.is(200);
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        if methods.get("get").is_none() {
            continue;
        }
        let number = if path.contains("/jobs/") { "1" } else { "9" };
        let url = path.replace("{consumer}", "stock").replace("{number}", number);
        for url in [format!("{url}?id=order-9"), format!("{url}?payload=show&limit=1&id=order-9")] {
            let answered = site.get(&url).await;
            let is_lines = answered.is(200).header("content-type") == "application/jsonl";
            let documents =
                if is_lines { answered.text.lines().collect() } else { vec![answered.text.as_str()] };
            for text in documents {
                let found: Value = serde_json::from_str(text).unwrap();
                assert_eq!(mismatch(&document, answer(&document, path, "get"), &found, &url), None);
                asked += 1;
            }
        }
    }
    assert!(asked >= 26, "{asked}");
}

#[tokio::test]
async fn every_action_is_as_it_is_described() {
    let document = oncebox_dashboard::openapi();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(name) = path.strip_prefix("/api/v1/actions/") else { continue };
        let schema = &methods["post"]["requestBody"]["content"]["application/json"]["schema"];
        let mut body = serde_json::Map::new();
        for (field, of) in schema["properties"].as_object().unwrap() {
            let value = match (field.as_str(), of["type"].as_str().unwrap()) {
                ("consumer" | "confirm", _) => Value::from("stock"),
                (_, "string") => Value::from("earliest"),
                (_, "integer") => Value::from(1),
                (_, "boolean") => Value::from(true),
                ("headers", "array") => Value::from(vec!["name=value"]),
                (_, "array") => Value::from(vec![5]),
                other => panic!("{other:?}"),
            };
            // The other way to say the same.
            if ![("replay-dead", "group"), ("edit-dead", "payload_base64")].contains(&(name, field.as_str()))
            {
                body.insert(field.clone(), value);
            }
        }
        let site = Site::local(Fake::busy());
        let whole = Value::Object(body.clone());
        let found = site.post(&format!("/api/v1/actions/{name}"), &[], &whole.to_string()).await;
        assert_eq!(mismatch(&document, answer(&document, path, "post"), &found.is(200).json(), name), None);
        for required in schema["required"].as_array().unwrap().iter().filter_map(Value::as_str) {
            let mut less = body.clone();
            less.remove(required);
            let refused =
                site.post(&format!("/api/v1/actions/{name}"), &[], &Value::Object(less).to_string()).await;
            refused.is(422).has(required);
        }
        body.insert("surprise".to_owned(), Value::from(1));
        let refused =
            site.post(&format!("/api/v1/actions/{name}"), &[], &Value::Object(body).to_string()).await;
        refused.is(422).has("surprise");
    }
}

#[tokio::test]
async fn what_goes_wrong_is_described_too() {
    let document = oncebox_dashboard::openapi();
    let schema = &document["components"]["schemas"]["Problem"];
    let site = Site::local(Fake::busy());
    for (path, status) in [
        ("/api/v1/nothing", 404),
        ("/api/v1/consumers/nobody", 404),
        ("/api/v1/dead-letters/77", 404),
        ("/api/v1/jobs/77", 404),
        ("/api/v1/dead-letters?before=x", 422),
        ("/api/v1/dead-letters?since=yesterday", 422),
        ("/api/v1/dead-letters/export?limit=x", 422),
        ("/api/v1/find", 422),
        ("/api/v1/outbox/events?state=lost", 422),
    ] {
        let found = site.get(path).await.is(status).json();
        assert_eq!(mismatch(&document, schema, &found, path), None);
    }
    let away = Site::local(Fake::away());
    assert_eq!(mismatch(&document, schema, &away.get("/api/v1/overview").await.is(503).json(), "away"), None);
    site.post("/api/v1/actions/pause", &[], "[]").await.is(422);
    site.post("/api/v1/actions/pause", &[], "{").await.is(422);
}

#[test]
fn a_mismatch_is_found() {
    let document = oncebox_dashboard::openapi();
    let schema = &document["components"]["schemas"]["Problem"];
    for wrong in
        [serde_json::json!({}), serde_json::json!({"error": 1}), serde_json::json!({"error": "x", "more": 1})]
    {
        assert!(mismatch(&document, schema, &wrong, "").is_some(), "{wrong}");
    }
}
