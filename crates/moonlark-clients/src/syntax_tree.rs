//! Syntax trees of settings files, whichever syntax they have, with the place of
//! everything.
//!
//! `jsonc`, `toml_text` and `yaml_text` make such trees; what the keys mean is not known here.

use std::ops::Range;

use moonlark_core::{Problem, SourceLocation};
use serde_json::{Map, Value as Json};

/// One value and the bytes it takes in the text. Tables of TOML are spread over the
/// text: their span is that of the header.
#[derive(Debug, Clone)]
pub struct SyntaxNode {
    pub span: Range<usize>,
    pub kind: SyntaxNodeKind,
}

#[derive(Debug, Clone)]
pub enum SyntaxNodeKind {
    Object(Vec<SyntaxMember>),
    Array(Vec<SyntaxNode>),
    Scalar(Json),
}

#[derive(Debug, Clone)]
pub struct SyntaxMember {
    pub key: String,
    pub(crate) key_span: Range<usize>,
    pub value: SyntaxNode,
}

impl SyntaxNode {
    /// Of a key that is there twice, the last one counts.
    pub fn get(&self, key: &str) -> Option<&SyntaxMember> {
        self.members().iter().rfind(|member| member.key == key)
    }

    /// The value at `path`. In a list, a key means the item with that `name`.
    pub(crate) fn find_path(&self, path: &[&str]) -> Option<&SyntaxNode> {
        path.iter().try_fold(self, |node, key| match &node.kind {
            SyntaxNodeKind::Array(items) => {
                items.iter().find(|item| item.item_name() == Some(*key))
            }
            _ => node.get(key).map(|member| &member.value),
        })
    }

    pub fn members(&self) -> &[SyntaxMember] {
        match &self.kind {
            SyntaxNodeKind::Object(members) => members,
            _ => &[],
        }
    }

    /// The names of what is in it: keys of an object, `name` of the items of a list.
    pub(crate) fn entry_names(&self) -> Vec<String> {
        match &self.kind {
            SyntaxNodeKind::Object(members) => members.iter().map(|it| it.key.clone()).collect(),
            SyntaxNodeKind::Array(items) => {
                items.iter().filter_map(|item| item.item_name().map(str::to_owned)).collect()
            }
            SyntaxNodeKind::Scalar(_) => Vec::new(),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        match &self.kind {
            SyntaxNodeKind::Object(members) => members.is_empty(),
            SyntaxNodeKind::Array(items) => items.is_empty(),
            SyntaxNodeKind::Scalar(value) => value.is_null(),
        }
    }

    pub fn to_json(&self) -> Json {
        match &self.kind {
            SyntaxNodeKind::Scalar(value) => value.clone(),
            SyntaxNodeKind::Array(items) => items.iter().map(SyntaxNode::to_json).collect(),
            SyntaxNodeKind::Object(members) => {
                let member = |member: &SyntaxMember| (member.key.clone(), member.value.to_json());
                Json::Object(members.iter().map(member).collect::<Map<_, _>>())
            }
        }
    }

    /// The `name` of an item of a list.
    fn item_name(&self) -> Option<&str> {
        match &self.get("name")?.value.kind {
            SyntaxNodeKind::Scalar(Json::String(name)) => Some(name),
            _ => None,
        }
    }
}

/// What is wrong with a text, and where. It quotes nothing, since what is there
/// may be secret.
#[derive(Debug, PartialEq)]
pub struct TextFault {
    pub offset: usize,
    pub message: String,
    /// The text is fine as it is, but a change would do more to it than it should.
    pub(crate) is_about_edit: bool,
}

impl TextFault {
    pub fn new(offset: usize, message: impl Into<String>) -> TextFault {
        TextFault { offset, message: message.into(), is_about_edit: false }
    }

    pub(crate) fn new_edit_fault(offset: usize, message: impl Into<String>) -> TextFault {
        TextFault { offset, message: message.into(), is_about_edit: true }
    }

    /// With line and column of `text`, which is in the file called `label`.
    pub fn to_problem(&self, text: &str, label: &str) -> Problem {
        let before = text.get(..self.offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let hint = if self.is_about_edit {
            "nothing was changed; make the change by hand"
        } else {
            "nothing was changed; fix the file and run this again"
        };
        Problem::bad_config(&self.message)
            .at_location(SourceLocation::at_column(label, number(line), number(column)))
            .with_hint(hint)
    }
}
