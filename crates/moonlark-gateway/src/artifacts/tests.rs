use std::collections::HashSet;

use serde_json::json;

use super::*;
use moonlark_core::problem::ProblemCode;
use moonlark_core::value::Object;

fn value(json: serde_json::Value) -> Value {
    Value::from_json(json).unwrap()
}

fn many(count: i64) -> Value {
    let item =
        |id: i64| Value::from_fields([("id", id.into()), ("name", format!("item {id}").into())]);
    let items: Vec<Value> = (1..=count).map(item).collect();
    Value::from_fields([("items", items.into()), ("total", count.into())])
}

/// A shelf on which the clock is ours.
struct World(ArtifactStore, Instant);

impl World {
    fn new(bytes: usize) -> World {
        let artifacts = ArtifactStore::default();
        artifacts.set_max_bytes(bytes);
        World(artifacts, Instant::now())
    }

    /// Something of so many bytes, so many seconds after the beginning.
    fn put(&self, bytes: usize, after: u64) -> ArtifactHandle {
        let now = self.1 + Duration::from_secs(after);
        let held = ArtifactContent::Bytes { bytes: Vec::new(), mime: String::new() };
        self.0
            .store_at(ArtifactHandle::new_random().unwrap(), held, bytes, bytes, "test".into(), now)
            .unwrap()
    }

    fn put_for(&self, name: &str, bytes: usize) -> ArtifactHandle {
        let caller = Caller::new("rest").with_name(name);
        let held = ArtifactContent::Bytes { bytes: Vec::new(), mime: String::new() };
        let maker = ArtifactOrigin("test", Some(&caller));
        self.0
            .store_at(ArtifactHandle::new_random().unwrap(), held, bytes, bytes, maker, self.1)
            .unwrap()
    }

    fn has(&self, handle: &ArtifactHandle, after: u64) -> bool {
        self.0.get_at(handle.as_str(), self.1 + Duration::from_secs(after)).is_some()
    }
}

#[test]
fn what_is_put_can_be_read_by_its_handle_and_by_its_address() {
    let artifacts = ArtifactStore::default();
    let handle = artifacts.put_value(many(3), "files.list", &CallLimits::default()).unwrap();
    for name in [handle.as_str(), &format!("artifact://{handle}")] {
        let stored = artifacts.find_for_caller(name, &Caller::new("rest")).unwrap();
        assert_eq!(*stored.read_selection(&ArtifactSelection::default()).unwrap(), many(3));
        assert_eq!(stored.of, "files.list");
    }
    let bytes = vec![0xff, 0, 1];
    let handle = artifacts
        .put_bytes_as(
            ArtifactHandle::new_random().unwrap(),
            bytes.clone(),
            "image/png",
            "a",
            &CallLimits::default(),
        )
        .unwrap();
    let stored = artifacts.find_for_caller(handle.as_str(), &Caller::new("rest")).unwrap();
    assert_eq!(stored.size, 3);
    assert_eq!(*stored.read_selection(&ArtifactSelection::default()).unwrap(), Value::Bytes(bytes));
}

#[test]
fn artifacts_of_one_caller_never_push_out_those_of_another_within_its_share() {
    // By bytes, and by how many there are.
    for (all, each, count) in [(8_000, 500, 100), (100_000_000, 1, 3 * MAX_ARTIFACTS)] {
        let world = World::new(all);
        let of_ann: Vec<ArtifactHandle> = (0..2).map(|_| world.put_for("ann", each)).collect();
        let of_bob: Vec<ArtifactHandle> = (0..count).map(|_| world.put_for("bob", each)).collect();
        assert!(of_ann.iter().all(|handle| world.has(handle, 0)), "{all}");
        assert!(!world.has(&of_bob[0], 0) && world.has(&of_bob[count - 1], 0), "{all}");
        // Who comes later gets room from whoever has most.
        let of_carol = world.put_for("carol", each);
        assert!(world.has(&of_carol, 0) && of_ann.iter().all(|handle| world.has(handle, 0)));
    }
}

#[test]
fn what_was_made_for_a_caller_with_a_name_is_there_for_nobody_else() {
    let artifacts = ArtifactStore::default();
    let (ann, bob) = (Caller::new("rest").with_name("ann"), Caller::new("rest").with_name("bob"));
    let nobody = Caller::new("rest");
    let handle = artifacts.put_value(many(3), ("a", &ann), &CallLimits::default()).unwrap();
    let has = |caller: &Caller| artifacts.find_for_caller(handle.as_str(), caller).is_ok();
    assert!(has(&ann) && has(&Caller { surface: "mcp", ..ann.clone() }));
    assert!(!has(&bob) && !has(&nobody) && !has(&Caller::new("cli")));
    let handle = artifacts.put_value(many(3), ("a", &nobody), &CallLimits::default()).unwrap();
    assert!(artifacts.find_for_caller(handle.as_str(), &bob).is_ok());
}

#[test]
fn handles_are_of_one_form_and_never_the_same() {
    let handles: HashSet<String> =
        (0..1000).map(|_| ArtifactHandle::new_random().unwrap().as_str().to_owned()).collect();
    assert_eq!(handles.len(), 1000);
    let letters =
        |it: &str| it.bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b));
    for handle in handles {
        let random = handle.strip_prefix("art_").unwrap();
        assert!(random.len() == 26 && letters(random), "{handle}");
    }
}

#[test]
fn a_handle_that_leads_nowhere_says_what_handles_are() {
    let artifacts = ArtifactStore::default();
    let problem = |handle: &str| {
        artifacts.find_for_caller(handle, &Caller::new("rest")).unwrap_err().to_string()
    };
    assert_eq!(
        problem("art_abc"),
        "error[not_found]: there is no artifact 'art_abc'\nhint: artifacts are kept for up to a day, and the oldest make room for new ones: run what made it again"
    );
    assert_eq!(
        problem("items"),
        "error[not_found]: there is no artifact 'items'\nhint: a handle begins with art_, as it was in the answer of an earlier script"
    );
    assert!(problem(&"x".repeat(100_000)).len() < 300);
}

#[test]
fn the_oldest_make_room_for_new_ones() {
    let world = World::new(100);
    let (a, b) = (world.put(40, 0), world.put(40, 1));
    assert!(world.has(&a, 1) && world.has(&b, 1));
    let c = world.put(40, 2);
    assert!(!world.has(&a, 2) && world.has(&b, 2) && world.has(&c, 2));
    let d = world.put(100, 3);
    assert!(!world.has(&b, 3) && !world.has(&c, 3) && world.has(&d, 3));
    world.0.set_max_bytes(50);
    assert!(!world.has(&d, 3));
    assert_eq!(world.0.entries.lock().bytes, 0);
}

#[test]
fn an_artifact_is_there_for_an_hour() {
    let world = World::new(100);
    let handle = world.put(1, 0);
    assert!(world.has(&handle, 3599));
    assert!(!world.has(&handle, 3600));
    assert!(world.0.entries.lock().order.is_empty());
}

#[test]
fn there_are_never_more_than_a_thousand() {
    let world = World::new(100_000);
    let handles: Vec<ArtifactHandle> = (0..1001).map(|_| world.put(1, 0)).collect();
    assert!(!world.has(&handles[0], 0));
    assert!(handles[1..].iter().all(|handle| world.has(handle, 0)));
}

#[test]
fn what_is_held_by_a_reader_outlives_its_place() {
    let world = World::new(100);
    let handle = world.put(100, 0);
    let held = world.0.get_at(handle.as_str(), world.1).unwrap();
    world.put(100, 0);
    assert!(!world.has(&handle, 0));
    assert_eq!(held.size, 100);
}

#[test]
fn a_value_over_a_limit_is_a_problem() {
    let artifacts = ArtifactStore::default();
    let limits = CallLimits { value: 1000, ..CallLimits::default() };
    let put = |value: Value| artifacts.put_value(value, "a", &limits).unwrap_err().to_string();
    assert_eq!(
        put(value(json!({"a": ["x".repeat(2000)]}))),
        "error[limit]: the value.a[0] is larger than 1000 bytes\nhint: return less, or raise limits.value"
    );
    let mut deep = Value::Null;
    for _ in 0..200 {
        deep = Value::Array(vec![deep]);
    }
    let problem = artifacts.put_value(deep, "a", &CallLimits::default()).unwrap_err();
    assert_eq!(problem.message, "the value is nested deeper than 128 levels");
    let large = artifacts
        .put_bytes_as(
            ArtifactHandle::new_random().unwrap(),
            vec![0; 1001],
            "image/png",
            "a",
            &limits,
        )
        .unwrap_err();
    assert_eq!(large.code, ProblemCode::Limit);
    artifacts.set_max_bytes(500);
    assert_eq!(
        put("x".repeat(600).into()),
        "error[limit]: the value does not fit 500 bytes, which all artifacts may take\nhint: return less, or raise limits.artifacts"
    );
}

#[test]
fn a_part_is_found_by_its_path() {
    let value = value(json!({"items": [{"id": 7, "a.b": {"c d": true}}], "3": "x"}));
    let read = |path: &str| match value_at_path(&value, path) {
        Ok(found) => found.encode_json("part").unwrap(),
        Err(problem) => problem.to_string(),
    };
    for (path, expected) in [
        ("items[1].id", "7"),
        ("items.1.id", "7"),
        ("[\"items\"][1]['a.b'][\"c d\"]", "true"),
        (".items[1].id", "7"),
        ("3", "\"x\""),
        ("[3]", "\"x\""),
        ("item", "error[not_found]: artifact has no field 'item'\nhint: did you mean items?"),
        ("nothing", "error[not_found]: artifact has no field 'nothing'\nhint: there are items, 3"),
        ("items[2]", "error[not_found]: artifact.items has no item 2: it is a list of 1 item"),
        ("items[0]", "error[not_found]: artifact.items has no item 0: it is a list of 1 item"),
        (
            "items.id",
            "error[not_found]: artifact.items is a list of 1 item, which has no field 'id'\nhint: take one item by its number, as in items[1], or slice the list with from and count",
        ),
        (
            "items[1].id.x",
            "error[not_found]: artifact.items[1].id is an integer, with nothing inside",
        ),
        (
            "3.x",
            "error[not_found]: artifact[\"3\"] is a text of 1 byte, with nothing inside\nhint: if the text is JSON, read it with json.decode(artifact(handle))",
        ),
        (
            "items[x]",
            "error[bad_request]: path cannot be read from '[x]' on\nhint: write it as in items[3].name or [\"a key\"].name",
        ),
        (
            "items..id",
            "error[bad_request]: path cannot be read from '..id' on\nhint: write it as in items[3].name or [\"a key\"].name",
        ),
        (
            "items[1",
            "error[bad_request]: path cannot be read from '[1' on\nhint: write it as in items[3].name or [\"a key\"].name",
        ),
    ] {
        assert_eq!(read(path), expected, "{path}");
    }
    assert!(read(&"a.".repeat(1000)).contains("longer than 1000 bytes"));
    assert!(read(&"[\"".repeat(400)).contains("cannot be read"));
}

#[test]
fn slices_that_follow_each_other_make_up_the_whole() {
    let text = "aäöü€😀z".repeat(20);
    for count in 4..30 {
        let pieces =
            (0..).map(|index| slice_value(&text.as_str().into(), 1 + index * count, count));
        let pieces = pieces.take(text.len() / count + 1).map(|it| it.unwrap());
        let joined: String = pieces.map(|it| it.as_str().unwrap().to_owned()).collect();
        assert_eq!(joined, text, "{count}");
    }
    let list = value(json!([1, 2, 3]));
    for (from, count, expected) in
        [(1, 2, "[1,2]"), (3, 9, "[3]"), (4, 1, "[]"), (9, 1, "[]"), (1, usize::MAX, "[1,2,3]")]
    {
        assert_eq!(slice_value(&list, from, count).unwrap().encode_json("it").unwrap(), expected);
    }
    assert_eq!(slice_value(&Value::Bytes(vec![0xff, 65, 66]), 2, 2).unwrap(), "AB".into());
}

#[test]
fn what_has_no_slices_says_what_it_is() {
    let problem = |value, from| slice_value(&value, from, 1).unwrap_err().to_string();
    assert_eq!(
        problem(many(1), 1),
        "error[bad_request]: only lists and texts have slices; this is an object with 2 fields\nhint: name the part to slice with path"
    );
    assert_eq!(
        problem(true.into(), 1),
        "error[bad_request]: only lists and texts have slices; this is a boolean\nhint: read it without from and count"
    );
    assert_eq!(problem("a".into(), 0), "error[bad_request]: from counts from 1");
}

#[test]
fn a_slice_of_a_part_is_read_in_one_step() {
    let artifacts = ArtifactStore::default();
    let handle = artifacts.put_value(many(5000), "a", &CallLimits::default()).unwrap();
    let path = Some("items".to_owned());
    let wanted = ArtifactSelection { path, from: Some(4999), count: Some(100) };
    let stored = artifacts.find_for_caller(handle.as_str(), &Caller::new("rest")).unwrap();
    assert_eq!(
        stored.read_selection(&wanted).unwrap().encode_json("it").unwrap(),
        r#"[{"id":4999,"name":"item 4999"},{"id":5000,"name":"item 5000"}]"#
    );
}

#[test]
fn a_preview_keeps_the_structure_and_says_what_is_missing() {
    assert_eq!(
        preview_value(&many(5000), 110),
        r#"{"items": [{"id": 1, "name": "item 1"}, {"id": 2, "name": "item 2"}, … 4,998 more], "total": 5000}"#
    );
    assert_eq!(
        preview_value(&value(json!({"a": "x".repeat(5000), "b": [], "c": {}, "d": null})), 120),
        format!(
            r#"{{"a": "{}" … 4,940 more bytes, "b": [], "c": {{}}, "d": null}}"#,
            "x".repeat(60)
        )
    );
    assert_eq!(preview_value(&value(json!([1, 2.5, true])), 100), "[1, 2.5, true]");
    assert_eq!(preview_value(&"é".repeat(50).into(), 61), "\"éééééééééé\" … 80 more bytes");
    assert_eq!(preview_value(&Value::Bytes(vec![0; 2000]), 100), "<2,000 bytes>");
}

#[test]
fn a_preview_fits_whatever_the_value_is() {
    let wide: Object = (0..10_000).map(|n| (format!("field {n}"), many(10))).collect();
    let mut deep = many(100);
    for _ in 0..100 {
        deep =
            Value::from_fields([("below", deep.clone()), ("beside", "\u{0}\"".repeat(50).into())]);
    }
    let long_key = Value::from_fields([(&*"k".repeat(10_000), Value::Null)]);
    let control = Value::from("\u{1}".repeat(10_000));
    for value in [Value::Object(wide), deep, long_key, control, many(100_000)] {
        for bytes in [100, 500, 2000, 20_000] {
            let shown = preview_value(&value, bytes);
            assert!(shown.len() <= bytes, "{} of {bytes}: {shown}", shown.len());
        }
    }
}
