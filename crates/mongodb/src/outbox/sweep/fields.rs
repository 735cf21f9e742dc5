//! What can be known of a pipeline without running it.

use std::collections::BTreeSet;

use mongodb::bson::{Bson, Document};

/// The first stage that writes.
pub(super) fn writes(pipeline: &[Document]) -> Option<&str> {
    pipeline
        .iter()
        .flat_map(Document::keys)
        .map(String::as_str)
        .find(|name| ["$out", "$merge"].contains(name))
}

/// The collections of this database that the pipeline reads.
pub(super) fn collections(first: &str, pipeline: &[Document]) -> BTreeSet<String> {
    let mut names = BTreeSet::from([first.to_owned()]);
    add_collections(pipeline, &mut names);
    names
}

fn add_collections(pipeline: &[Document], names: &mut BTreeSet<String>) {
    for (name, stage) in pipeline.iter().flatten() {
        match (name.as_str(), stage) {
            ("$unionWith", Bson::String(other)) => {
                names.insert(other.clone());
            }
            ("$lookup" | "$graphLookup" | "$unionWith", Bson::Document(stage)) => {
                let other = stage.get_str("from").or_else(|_| stage.get_str("coll"));
                names.extend(other.ok().map(str::to_owned));
                add_collections(&inner(stage), names);
            }
            ("$facet", Bson::Document(facets)) => {
                for (_, facet) in facets {
                    add_collections(&stages(facet), names);
                }
            }
            _ => {}
        }
    }
}

fn inner(stage: &Document) -> Vec<Document> {
    stage.get("pipeline").map(stages).unwrap_or_default()
}

fn stages(pipeline: &Bson) -> Vec<Document> {
    let stages = pipeline.as_array().map_or(&[][..], Vec::as_slice);
    stages.iter().filter_map(|stage| stage.as_document().cloned()).collect()
}

/// The fields of the rows, where a stage says so. `None` if only the documents know.
pub(super) fn yielded(pipeline: &[Document]) -> Option<BTreeSet<String>> {
    let mut fields: Option<BTreeSet<String>> = None;
    for (name, stage) in pipeline.iter().flatten() {
        match (name.as_str(), stage) {
            ("$match" | "$sort" | "$limit" | "$skip" | "$sample" | "$redact", _) => {}
            ("$group", Bson::Document(group)) => fields = Some(group.keys().cloned().collect()),
            ("$sortByCount", _) => fields = Some(["_id".to_owned(), "count".to_owned()].into()),
            ("$count", Bson::String(name)) => fields = Some([name.clone()].into()),
            ("$project", Bson::Document(project)) => fields = projected(project, fields),
            ("$addFields" | "$set", Bson::Document(added)) => {
                if let Some(fields) = &mut fields {
                    fields.extend(added.keys().map(|name| first(name)));
                }
            }
            ("$lookup" | "$graphLookup", Bson::Document(stage)) => {
                if let (Some(fields), Ok(name)) = (&mut fields, stage.get_str("as")) {
                    fields.insert(first(name));
                }
            }
            ("$unwind", stage) => {
                let index = stage.as_document().and_then(|stage| stage.get_str("includeArrayIndex").ok());
                if let (Some(fields), Some(name)) = (&mut fields, index) {
                    fields.insert(first(name));
                }
            }
            _ => fields = None,
        }
    }
    fields
}

/// One that names what stays says what there is; one that names what goes says it only if that was known before.
fn projected(project: &Document, before: Option<BTreeSet<String>>) -> Option<BTreeSet<String>> {
    let goes = |value: &Bson| match value {
        Bson::Boolean(stays) => !stays,
        Bson::Int32(number) => *number == 0,
        Bson::Int64(number) => *number == 0,
        Bson::Double(number) => *number == 0.0,
        _ => false,
    };
    let excludes = project.iter().all(|(_, value)| goes(value));
    if excludes {
        let gone: Vec<&String> = project.keys().filter(|name| !name.contains('.')).collect();
        return before.map(|fields| fields.into_iter().filter(|field| !gone.contains(&field)).collect());
    }
    let mut fields: BTreeSet<String> =
        project.iter().filter(|(_, value)| !goes(value)).map(|(name, _)| first(name)).collect();
    if !project.get("_id").is_some_and(goes) {
        fields.insert("_id".to_owned());
    }
    Some(fields)
}

fn first(path: &str) -> String {
    path.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    fn of(pipeline: &[Document]) -> Option<Vec<String>> {
        yielded(pipeline).map(|fields| fields.into_iter().collect())
    }

    #[test]
    fn fields_are_known_where_a_stage_names_them() {
        let group = doc! { "$group": { "_id": "$id", "n": { "$sum": 1 } } };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[doc! { "$match": {} }, doc! { "$set": { "a": 1 } }]), None);
        assert_eq!(of(std::slice::from_ref(&group)).unwrap(), ["_id", "n"]);
        assert_eq!(of(&[doc! { "$project": { "a.b": 1, "c": "$x" } }]).unwrap(), ["_id", "a", "c"]);
        assert_eq!(of(&[doc! { "$project": { "_id": 0, "a": 1 } }]).unwrap(), ["a"]);
        assert_eq!(of(&[doc! { "$project": { "_id": 0 } }]), None, "only the documents know");
        assert_eq!(of(&[group.clone(), doc! { "$project": { "_id": 0 } }]).unwrap(), ["n"]);
        assert_eq!(of(&[group.clone(), doc! { "$set": { "x": 1 } }]).unwrap(), ["_id", "n", "x"]);
        assert_eq!(of(&[group, doc! { "$replaceRoot": { "newRoot": "$n" } }]), None);
    }

    #[test]
    fn collections_are_found_wherever_they_are_read() {
        let pipeline = [
            doc! { "$lookup": { "from": "b", "as": "x", "pipeline": [{ "$unionWith": "c" }] } },
            doc! { "$facet": { "one": [{ "$graphLookup": { "from": "d" } }] } },
            doc! { "$unionWith": { "coll": "e", "pipeline": [] } },
        ];
        assert_eq!(collections("a", &pipeline), ["a", "b", "c", "d", "e"].map(str::to_owned).into());
    }

    #[test]
    fn a_stage_that_writes_is_found() {
        assert_eq!(writes(&[doc! { "$match": {} }, doc! { "$merge": "x" }]), Some("$merge"));
        assert_eq!(writes(&[doc! { "$match": { "$out": 1 } }]), None);
    }
}
