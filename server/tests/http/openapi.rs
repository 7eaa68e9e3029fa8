//! The description of the API: whole by the rules of OpenAPI 3.1, true of the router, and true in its
//! examples and in what the server answers.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use wheelhouse_server::http::{OPENAPI, Settings};
use wheelhouse_server::task::{Due, Task};

use super::{Answer, Running};

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// What a value may be that stands for another.
fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref") {
        Some(place) => {
            let place = place.as_str().unwrap().strip_prefix('#').unwrap();
            let found = document
                .pointer(place)
                .unwrap_or_else(|| panic!("{place} is not there"));
            resolve(document, found)
        }
        None => value,
    }
}

/// Every value below one, itself first.
fn each<'a>(value: &'a Value, seen: &mut dyn FnMut(&'a Value)) {
    seen(value);
    match value {
        Value::Object(map) => map.values().for_each(|it| each(it, seen)),
        Value::Array(all) => all.iter().for_each(|it| each(it, seen)),
        _ => {}
    }
}

/// What is wrong with a value by a schema; nothing if it fits. Knows the words that the description
/// uses, and fails on any other, so that none is passed over.
fn wrong(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    let words: &Map<String, Value> = schema.as_object().unwrap();
    for (word, rule) in words {
        let fits = match &**word {
            "description" | "default" | "examples" => true,
            "$ref" => match wrong(document, resolve(document, schema), value) {
                None => true,
                error => return error,
            },
            "type" => match rule.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "integer" => value.is_i64() || value.is_u64(),
                "boolean" => value.is_boolean(),
                other => panic!("type {other} is not known"),
            },
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|it| it >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|it| it <= rule.as_f64().unwrap()),
            "minLength" => length(value).is_none_or(|it| it >= rule.as_u64().unwrap()),
            "maxLength" => length(value).is_none_or(|it| it <= rule.as_u64().unwrap()),
            "maxProperties" => value
                .as_object()
                .is_none_or(|it| it.len() as u64 <= rule.as_u64().unwrap()),
            "pattern" => value
                .as_str()
                .is_none_or(|it| matches(rule.as_str().unwrap(), it)),
            "format" => value
                .as_str()
                .is_none_or(|it| match rule.as_str().unwrap() {
                    "date-time" => it.parse::<wheelhouse_wheel::cron::Timestamp>().is_ok(),
                    "uri" => it.contains("://"),
                    other => panic!("format {other} is not known"),
                }),
            "required" => names(rule).all(|name| value.get(name).is_some()),
            "dependentRequired" => rule.as_object().unwrap().iter().all(|(name, needs)| {
                value.get(name).is_none() || names(needs).all(|it| value.get(it).is_some())
            }),
            "properties" => {
                let known = rule.as_object().unwrap();
                let mut errors = known
                    .iter()
                    .filter_map(|(name, schema)| wrong(document, schema, value.get(name)?));
                match errors.next() {
                    None => true,
                    error => return error,
                }
            }
            "additionalProperties" => {
                let known = words.get("properties").and_then(Value::as_object);
                let mut others = value.as_object().into_iter().flatten();
                others.all(|(name, it)| {
                    known.is_some_and(|known| known.contains_key(name))
                        || (rule.is_object() && wrong(document, rule, it).is_none())
                })
            }
            "items" => {
                let all = value.as_array().into_iter().flatten();
                all.into_iter()
                    .all(|it| wrong(document, rule, it).is_none())
            }
            "oneOf" => {
                let all = rule.as_array().unwrap().iter();
                all.filter(|it| wrong(document, it, value).is_none())
                    .count()
                    == 1
            }
            other => panic!("the word {other} is not known"),
        };
        if !fits {
            return Some(format!("{word}: {rule} does not fit {value}"));
        }
    }
    None
}

fn length(value: &Value) -> Option<u64> {
    value.as_str().map(|it| it.chars().count() as u64)
}

fn names(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
}

/// The patterns of the description.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern {
        "^(?!wheelhouse:)" => !text.starts_with("wheelhouse:"),
        "^https?://" => text.starts_with("http://") || text.starts_with("https://"),
        "^[!-~]+$" => !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()),
        "^urn:wheelhouse:problem:[a-z-]+$" => text
            .strip_prefix("urn:wheelhouse:problem:")
            .is_some_and(|it| it.bytes().all(|b| b == b'-' || b.is_ascii_lowercase())),
        other => panic!("the pattern {other} is not known"),
    }
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods
            .filter(|(method, _)| METHODS.contains(&&***method))
            .map(move |(method, operation)| (&**path, &**method, operation))
    })
}

#[test]
fn it_is_whole() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    each(&document, &mut |value| {
        if value.get("$ref").is_some_and(Value::is_string) {
            resolve(&document, value);
        }
    });
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let at = format!("{method} {path}");
        assert!(
            ids.insert(operation["operationId"].as_str().unwrap()),
            "{at}"
        );
        assert!(operation["summary"].is_string(), "{at}");
        let item = &document["paths"][path];
        let of = |it: &Value| it["parameters"].as_array().cloned().unwrap_or_default();
        let mut placed = BTreeSet::new();
        for parameter in of(item).iter().chain(&of(operation)) {
            let parameter = resolve(&document, parameter);
            let (name, place) = (parameter["name"].as_str().unwrap(), &parameter["in"]);
            assert!(parameter["schema"].is_object(), "{at}: {name}");
            if place == "path" {
                assert_eq!(parameter["required"], true, "{at}: {name}");
                placed.insert(name.to_owned());
            }
        }
        let templated = path
            .split('{')
            .skip(1)
            .map(|it| it.split('}').next().unwrap().to_owned());
        assert_eq!(placed, templated.collect(), "{at}");
        let responses = operation["responses"].as_object().unwrap();
        for (status, response) in responses {
            assert!(
                status
                    .parse::<u16>()
                    .is_ok_and(|it| (200..600).contains(&it)),
                "{at}"
            );
            assert!(
                resolve(&document, response)["description"].is_string(),
                "{at} {status}"
            );
        }
    }
    // Whatever is described is used.
    let mut used = BTreeSet::new();
    each(&document, &mut |value| {
        used.extend(value.get("$ref").and_then(Value::as_str));
    });
    // These are within texts: lines, and data of events.
    used.extend(["BatchAnswer", "Event", "Lagged"].map(|it| match it {
        "BatchAnswer" => "#/components/schemas/BatchAnswer",
        "Event" => "#/components/schemas/Event",
        _ => "#/components/schemas/Lagged",
    }));
    for kind in ["parameters", "headers", "responses", "schemas"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            let place = format!("#/components/{kind}/{name}");
            assert!(used.contains(&*place), "{place} is not used");
        }
    }
}

#[test]
fn every_example_fits_its_schema_and_the_server_takes_it() {
    let document = document();
    let mut examples = 0;
    each(&document, &mut |value| {
        let (Some(schema), Some(all)) = (value.get("schema"), value.get("examples")) else {
            return;
        };
        for (name, example) in all.as_object().unwrap() {
            examples += 1;
            let error = wrong(&document, schema, &example["value"]);
            assert_eq!(error, None, "{name}");
            let json = example["value"].to_string();
            match schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap() {
                "Task" => drop(Task::from_json(json.as_bytes()).unwrap()),
                "Due" => assert!(Due::from_json(json.as_bytes()).is_ok(), "{name}"),
                _ => {}
            }
        }
    });
    assert!(examples > 20, "{examples}");
    // The check is one: what does not fit is found.
    let task = &document["components"]["schemas"]["Task"];
    for bad in [
        r#"{"target":{"topic":"t"}}"#,
        r#"{"delay":"1s","at":"2030-01-01T00:00:00Z","target":{"topic":"t"}}"#,
        r#"{"delay":"1s","target":{"topic":"wheelhouse:x"}}"#,
        r#"{"delay":"1s","target":{"topic":"t"},"more":1}"#,
        r#"{"delay":"1s","tz":"UTC","target":{"topic":"t"}}"#,
        r#"{"delay":1,"target":{"topic":"t"}}"#,
        r#"{"delay":"1s","target":{"topic":"t"},"retry":{"max_attempts":101}}"#,
    ] {
        let bad = serde_json::from_str(bad).unwrap();
        assert!(wrong(&document, task, &bad).is_some(), "{bad}");
    }
}

/// What is answered is described: the status, and the body by its schema.
fn described(document: &Value, path: &str, method: &str, answer: &Answer) {
    let responses = &document["paths"][path][method]["responses"];
    let response = resolve(document, &responses[answer.status.to_string()]);
    assert!(
        response.is_object(),
        "{method} {path}: {} is not described",
        answer.status
    );
    for kind in ["application/json", "application/problem+json"] {
        if let Some(schema) = response["content"][kind].get("schema") {
            assert!(
                answer.has(&format!("content-type: {kind}")),
                "{method} {path}"
            );
            assert_eq!(
                wrong(document, schema, &answer.value()),
                None,
                "{method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn it_is_true_of_what_the_server_answers() {
    let document = document();
    let server = Running::start(Settings::new()).await;
    let told = server.ask("GET", "/openapi.json", "", "").await;
    assert_eq!(told.value(), document);

    // Each operation is there, and no other method is.
    for path in document["paths"].as_object().unwrap().keys() {
        let real = path.replace("{key}", "a").replace("{number}", "7");
        for method in METHODS {
            let there = document["paths"][path].get(method).is_some();
            // One that streams without an end is asked wrongly.
            let real = if path == "/v1/events" {
                "/v1/events?x"
            } else {
                &*real
            };
            let answer = server.ask(&method.to_uppercase(), real, "", "").await;
            assert_eq!(answer.status != 405, there, "{method} {path}");
            if there {
                described(&document, path, method, &answer);
            }
        }
    }

    let task = r#"{"delay":"1h","target":{"topic":"t"}}"#;
    let (one, all) = ("/v1/tasks/{key}", "/v1/tasks");
    for status in [201, 200] {
        let put = server.json("PUT", "/v1/tasks/a", task).await;
        assert_eq!(put.status, status);
        described(&document, one, "put", &put);
    }
    let moved = server
        .json("PATCH", "/v1/tasks/a", r#"{"delay":"2h"}"#)
        .await;
    described(&document, one, "patch", &moved);
    described(
        &document,
        one,
        "get",
        &server.ask("GET", "/v1/tasks/a", "", "").await,
    );
    described(
        &document,
        all,
        "get",
        &server.ask("GET", "/v1/tasks?limit=1", "", "").await,
    );
    described(
        &document,
        one,
        "delete",
        &server.ask("DELETE", "/v1/tasks/a", "", "").await,
    );
    let kind = "content-type: application/x-ndjson\r\n";
    let lines = format!("{}\nbad", task.replacen('{', r#"{"key":"b","#, 1));
    let batch = server.ask("POST", "/v1/tasks:batch", kind, lines).await;
    let schema = &document["components"]["schemas"]["BatchAnswer"];
    assert_eq!(batch.body.lines().count(), 2);
    for line in batch.body.lines() {
        let line = serde_json::from_str(line).unwrap();
        assert_eq!(wrong(&document, schema, &line), None);
    }
    server.stop().await;
}
