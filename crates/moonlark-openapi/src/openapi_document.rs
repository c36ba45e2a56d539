//! An OpenAPI document as it was written: read tolerantly, resolved by need.
//!
//! It stays one tree, see [`crate::document_tree`]. Nothing is copied out of it until
//! somebody asks for a schema, so that a document with twenty thousand
//! operations costs about as much as its text.

use std::collections::HashMap;

use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::document_tree::{DocumentTree, TreeNode, TreeValue};

/// How many `$ref`s may lead from one to the next.
const MAX_REF_STEPS: usize = 32;
/// Values in a document of YAML, whose aliases repeat what they stand for.
const MAX_YAML_NODES: usize = 10_000_000;

pub struct OpenApiDocument {
    root: DocumentTree,
    /// Further files that it refers to, by the address before `#`.
    files: HashMap<String, DocumentTree>,
    /// Where it came from, if that was the web.
    pub(crate) base: Option<Url>,
    pub(crate) swagger: bool,
}

impl OpenApiDocument {
    pub fn new(
        root: DocumentTree,
        mut files: HashMap<String, DocumentTree>,
        base: Option<Url>,
    ) -> Result<OpenApiDocument> {
        let version = |key: &str| {
            root.root_node().get(key).map(|it| it.to_json().to_string().replace('"', ""))
        };
        let swagger = match (version("openapi"), version("swagger")) {
            (Some(version), _) if version.starts_with('3') => false,
            (_, Some(version)) if version.starts_with('2') => true,
            (Some(version), _) | (_, Some(version)) => {
                let message = format!("this is version {}", shorten_text(&version));
                return Err(Problem::bad_config(message)
                    .with_hint("OpenAPI 3.0, 3.1, 3.2 and Swagger 2.0 can be read"));
            }
            (None, None) => {
                return Err(Problem::bad_config("this is no OpenAPI document")
                    .with_hint("it needs a field openapi or swagger with the version"));
            }
        };
        for (address, tree) in &mut files {
            tree.address.clone_from(address);
        }
        Ok(OpenApiDocument { root, files, base, swagger })
    }

    pub(crate) fn root_node(&self) -> TreeNode<'_> {
        self.root.root_node()
    }

    /// A value of the file at `address`, which is known to be in it.
    pub(crate) fn node_in_file(&self, address: &str, value: TreeValue) -> TreeNode<'_> {
        TreeNode { tree: self.files.get(address).unwrap_or(&self.root), value }
    }

    /// The node that a `$ref` in `file` means.
    fn find_reference(&self, file: &str, reference: &str) -> Option<TreeNode<'_>> {
        let (address, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let tree = match (address, file) {
            ("", "") => &self.root,
            ("", file) => self.files.get(file)?,
            (address, file) => self.files.get(&join_address(file, address))?,
        };
        let root = tree.root_node();
        let decoded = percent_decode_str(pointer).decode_utf8_lossy();
        root.resolve_pointer(&decoded).or_else(|| root.resolve_pointer(pointer))
    }

    /// Follow `$ref`s until there is something else.
    pub(crate) fn resolve_node<'a>(&'a self, node: TreeNode<'a>) -> Result<TreeNode<'a>, String> {
        let mut node = node;
        for _ in 0..MAX_REF_STEPS {
            let Some(reference) = reference_of(node) else { return Ok(node) };
            node = self
                .find_reference(&node.tree.address, reference)
                .ok_or_else(|| format!("there is nothing at {}", shorten_text(reference)))?;
        }
        Err("a $ref leads back to itself".to_owned())
    }

    /// The node under `key`, resolved; none if there is none.
    pub(crate) fn get_resolved<'a>(
        &'a self,
        node: TreeNode<'a>,
        key: &str,
    ) -> Result<Option<TreeNode<'a>>, String> {
        match node.get(key) {
            Some(json) => self.resolve_node(json).map(Some),
            None => Ok(None),
        }
    }

    /// The one step that a `$ref` is.
    pub(crate) fn follow_reference<'a>(
        &'a self,
        node: TreeNode<'a>,
    ) -> Option<(&'a str, TreeNode<'a>)> {
        let reference = reference_of(node)?;
        Some((reference, self.find_reference(&node.tree.address, reference)?))
    }
}

pub(crate) fn reference_of(json: TreeNode<'_>) -> Option<&str> {
    json.get("$ref")?.as_str()
}

/// The tree of a text that is JSON or YAML.
pub fn parse_document(text: &[u8]) -> Result<DocumentTree> {
    let bad =
        |why: String| Problem::bad_config(format!("this cannot be read: {}", shorten_text(&why)));
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let begins = text.iter().find(|byte| !byte.is_ascii_whitespace());
    let as_json = matches!(begins, Some(b'{')).then(|| serde_json::from_slice(text));
    match as_json {
        Some(Ok(tree)) => Ok(tree),
        // A flow mapping of YAML begins the same way.
        other => {
            let text = std::str::from_utf8(text).map_err(|_| bad("it is not UTF-8".to_owned()))?;
            let options = serde_saphyr::options! {
                budget: serde_saphyr::budget! {
                    max_events: MAX_YAML_NODES * 2,
                    max_nodes: MAX_YAML_NODES,
                },
            };
            serde_saphyr::from_str_with_options(text, options).map_err(|error| match other {
                Some(Err(json)) => bad(json.to_string()),
                _ => bad(first_line(&error.to_string())),
            })
        }
    }
}

/// Without the drawing of the place, which is for terminals.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Every address of another file that occurs in a `$ref` of `tree`.
pub(super) fn referenced_addresses(tree: &DocumentTree) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for json in tree.root_node().iter_descendants() {
        let address = reference_of(json).and_then(|it| it.split('#').next());
        if let Some(address) = address.filter(|it| !it.is_empty())
            && !found.iter().any(|it| it == address)
        {
            found.push(address.to_owned());
        }
    }
    found
}

/// An address in `file`, as the table of files knows it.
pub(super) fn join_address(file: &str, address: &str) -> String {
    if let Ok(url) = Url::parse(address) {
        return url.into();
    }
    if let Ok(joined) = Url::parse(file).and_then(|base| base.join(address)) {
        return joined.into();
    }
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in address.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|it| *it != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_followed_within_and_across_files() {
        let root = json!({
            "openapi": "3.0.0",
            "a": {"$ref": "#/b~1c"},
            "b/c": {"$ref": "other/more.json#/x%20y"},
            "round": {"$ref": "#/round"},
            "lost": {"$ref": "#/nowhere"},
        });
        let more = json!({"x y": {"$ref": "../third.yaml#/z"}});
        let third = json!({"z": 7});
        let files = [("other/more.json", more), ("third.yaml", third)];
        let files =
            files.map(|(name, json)| (name.to_owned(), DocumentTree::from_json(&json))).into();
        let document = OpenApiDocument::new(DocumentTree::from_json(&root), files, None).unwrap();
        let at = |key: &str| {
            let found = document.get_resolved(document.root_node(), key);
            found.map(|node| node.map(|node| node.to_json()))
        };
        assert_eq!(at("a"), Ok(Some(json!(7))));
        assert_eq!(at("none"), Ok(None));
        assert_eq!(at("round"), Err("a $ref leads back to itself".to_owned()));
        assert_eq!(at("lost"), Err("there is nothing at #/nowhere".to_owned()));
    }

    #[test]
    fn addresses_are_joined_like_links() {
        for (file, address, expected) in [
            ("", "a.json", "a.json"),
            ("dir/a.json", "./b.json", "dir/b.json"),
            ("dir/deep/a.json", "../b.json", "dir/b.json"),
            ("https://x.org/v1/a.json", "b.json", "https://x.org/v1/b.json"),
            ("dir/a.json", "https://x.org/b.json", "https://x.org/b.json"),
        ] {
            assert_eq!(join_address(file, address), expected);
        }
    }

    #[test]
    fn both_notations_are_read_and_other_texts_are_refused() {
        let read = |text: &[u8]| parse_document(text).unwrap().root_node().to_json();
        assert_eq!(read(b"\xef\xbb\xbf {\"a\": 1}"), json!({"a": 1}));
        assert_eq!(read(b"a: 1\nb: [x, 'y']"), json!({"a": 1, "b": ["x", "y"]}));
        let yaml = "200: {a: &x [-1, 2.50, yes, ~, 0x10, 1e3, 2020-01-01]}\nb: *x\nc: |\n  text";
        let expected: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
        assert_eq!(read(yaml.as_bytes()), expected);
        assert!(parse_document(b"{\"a\": ").is_err());
        assert_eq!(
            parse_document(b"a: 1\nb: [").unwrap_err().message,
            "this cannot be read: line 2 column 4: unclosed bracket '['"
        );
        assert!(parse_document(&[b"{\"a\":".repeat(1000), b"1".to_vec()].concat()).is_err());
        let version = |json: serde_json::Value| {
            OpenApiDocument::new(DocumentTree::from_json(&json), HashMap::new(), None)
                .map(|it| it.swagger)
        };
        assert_eq!(version(json!({"openapi": "3.1.0"})).ok(), Some(false));
        assert_eq!(version(json!({"swagger": "2.0"})).ok(), Some(true));
        assert_eq!(version(json!({"swagger": 2.0})).ok(), Some(true));
        assert!(version(json!({"openapi": "4.0"})).is_err());
        assert!(version(json!({"asyncapi": "2.0"})).is_err());
    }
}
