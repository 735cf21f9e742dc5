//! The description of the API, made from its tables.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::action::{ACTIONS, Field, Kind, Spec};
use crate::api::{self, Problem, ROUTES, Route};
use crate::model::jobs::JobReport;

/// The OpenAPI document of the JSON API.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in ROUTES {
        paths.insert(route.path.to_owned(), json!({ "get": question(route, &mut generator) }));
    }
    for spec in ACTIONS {
        let path = api::ACTION_PATH.replace("{name}", spec.name);
        paths.insert(path, json!({ "post": action(spec, &mut generator) }));
    }
    let mut cancel = answers::<JobReport>(&mut generator, "It was told to stop; it ends between two steps.");
    cancel["summary"] = json!("Stop something that goes on.");
    cancel["parameters"] = json!(path_parameters(api::CANCEL_PATH));
    cancel["security"] = json!([{ "act": [] }]);
    paths.insert(api::CANCEL_PATH.to_owned(), json!({ "post": cancel }));
    generator.subschema_for::<Problem>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "oncebox",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the dashboard shows and does. Times are RFC 3339 in UTC; counts stop at 10,000.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "read": { "type": "http", "scheme": "bearer", "description": "a token of http.auth.read or http.auth.act" },
                "act": { "type": "http", "scheme": "bearer", "description": "a token of http.auth.act" },
            },
        },
    })
}

fn question(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut parameters = path_parameters(route.path);
    let query = |(name, help): &(&str, &str)| json!({ "name": name, "in": "query", "description": help, "schema": { "type": "string" } });
    parameters.extend(route.query.iter().map(query));
    let schema = (route.answer)(generator);
    let mut described = responses(route.content_type, &json!(schema), "What was asked for.");
    described["summary"] = json!(route.help);
    described["parameters"] = json!(parameters);
    described["security"] = json!([{ "read": [] }]);
    described
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let kind = if name == "number" { "integer" } else { "string" };
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": kind } })
    };
    names.map(parameter).collect()
}

fn action(spec: &Spec, generator: &mut SchemaGenerator) -> Value {
    let property = |field: &Field| {
        let mut schema = match field.kind {
            Kind::Text => json!({ "type": "string" }),
            Kind::Number => json!({ "type": "integer" }),
            Kind::Numbers => {
                json!({ "type": "array", "items": { "type": "integer" }, "minItems": 1, "maxItems": 1000 })
            }
            Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Kind::Flag => json!({ "type": "boolean", "default": false }),
        };
        schema["description"] = json!(field.help);
        (field.name.to_owned(), schema)
    };
    let properties: Map<String, Value> = spec.fields.iter().map(property).collect();
    let required: Vec<&str> = spec.fields.iter().filter(|f| f.required).map(|f| f.name).collect();
    let body = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    let mut described = answers::<JobReport>(
        generator,
        "What became of it; if it takes longer than some seconds, its number, to ask again with.",
    );
    described["summary"] = json!(spec.help);
    described["requestBody"] =
        json!({ "required": !required.is_empty(), "content": { "application/json": { "schema": body } } });
    described["security"] = json!([{ "act": [] }]);
    described
}

fn answers<T: JsonSchema>(generator: &mut SchemaGenerator, help: &str) -> Value {
    let schema = generator.subschema_for::<T>();
    responses("application/json", &json!(schema), help)
}

fn responses(content_type: &str, schema: &Value, help: &str) -> Value {
    let problem = json!({
        "description": "Why it was not answered, or not done.",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    json!({
        "responses": {
            "200": { "description": help, "content": { content_type: { "schema": schema } } },
            "default": problem,
        },
    })
}
