//! One operation of a document: what it is called, and what a call of it needs.
//!
//! Schemas are not read here, only found: see [`crate::schema_converter`].

use http::Method;
use moonlark_core::tool::CallEffects;
use serde_json::Value as Json;

use crate::document_tree::TreeNode;
use crate::openapi_document::OpenApiDocument;
use crate::operation_input::{self, BodyArguments};
use crate::operation_rules::HTTP_METHOD_NAMES;
use crate::parameter::{self, DocumentPart, OperationParam, ParamLocation};
use crate::{request_body, swagger};

/// An operation as it is found when a document is read. There may be thousands
/// of which a few are called: what a call needs is read again for it.
pub(crate) struct ApiOperation {
    /// How the document names it, or the name made from method and path; with a
    /// number behind it where an earlier operation has that name.
    pub(crate) id: String,
    /// The same without a number.
    pub(crate) original_id: String,
    /// Whether it, or its path, says itself where it is.
    pub(crate) has_servers: bool,
    pub(crate) method: Method,
    /// With `{name}` where parameters go.
    pub(crate) path: String,
    /// Its name under the path.
    key: String,
    pub(crate) description: String,
    pub(crate) tags: Vec<String>,
}

/// What a call needs to know.
#[derive(Default)]
pub(crate) struct OperationPlan {
    pub(crate) params: Vec<OperationParam>,
    pub(crate) body: Option<request_body::BodyPlan>,
    /// How callers give it; chosen when the parameters are known that they may give.
    pub(crate) body_arguments: BodyArguments,
    /// The servers it names itself.
    pub(crate) servers: Option<Json>,
    pub(crate) security: Option<DocumentPart>,
}

/// An operation that cannot be called, and why.
#[derive(Debug, PartialEq)]
pub(crate) struct SkippedOperation {
    pub(crate) operation: String,
    pub(crate) why: String,
}

/// All operations, in the order of the document.
pub(crate) fn list_operations(
    document: &OpenApiDocument,
) -> (Vec<ApiOperation>, Vec<SkippedOperation>) {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    let root = document.root_node();
    for (path, item) in root.object_fields("paths") {
        // Fields of the specification's own, and of vendors.
        if !path.starts_with('/') {
            continue;
        }
        let item = match document.resolve_node(item) {
            Ok(item) => item,
            Err(why) => {
                skipped.push(SkippedOperation { operation: path.to_owned(), why });
                continue;
            }
        };
        let own = item.fields().filter_map(|(key, json)| {
            let method =
                HTTP_METHOD_NAMES.iter().find(|method| key.eq_ignore_ascii_case(method))?;
            Some((*method, key, json))
        });
        let additional = item.object_fields("additionalOperations");
        let more = additional.map(|(method, json)| (method, method, json));
        for (method, key, json) in own.chain(more) {
            match read_operation(document, path, method, key, item, json) {
                Ok(operation) => found.push(operation),
                Err(why) => {
                    let operation = format!("{} {path}", method.to_uppercase());
                    skipped.push(SkippedOperation { operation, why });
                }
            }
        }
    }
    (found, skipped)
}

fn read_operation(
    document: &OpenApiDocument,
    path: &str,
    method: &str,
    key: &str,
    item: TreeNode<'_>,
    node: TreeNode<'_>,
) -> Result<ApiOperation, String> {
    if !node.is_object() {
        return Err("it is no object".to_owned());
    }
    let text = |key: &str| node.field_text(key).trim();
    let token = Method::from_bytes(method.to_uppercase().as_bytes())
        .map_err(|_| "its method is no word".to_owned())?;
    // Whether it can be called.
    let plan = build_plan(document, path, item, node)?;
    let id = match text("operationId") {
        "" => derive_operation_id(method, path),
        id => id.to_owned(),
    };
    Ok(ApiOperation {
        original_id: id.clone(),
        id,
        has_servers: plan.servers.is_some(),
        method: token,
        path: path.to_owned(),
        key: key.to_owned(),
        description: with_body_description(
            describe_operation(text("summary"), text("description"), node),
            document,
            &plan,
        ),
        tags: node.list_items("tags").filter_map(TreeNode::as_str).map(str::to_owned).collect(),
    })
}

fn build_plan(
    document: &OpenApiDocument,
    path: &str,
    item: TreeNode<'_>,
    node: TreeNode<'_>,
) -> Result<OperationPlan, String> {
    let listed = parameter::list_parameters(document, item, node)?;
    let (mut params, body) = if document.swagger {
        swagger::read_swagger_parameters(document, node, listed)?
    } else {
        let params: Result<Vec<OperationParam>, String> =
            listed.into_iter().map(|it| parameter::read_parameter(document, it)).collect();
        (params?, request_body::read_body_plan(document, node)?)
    };
    parameter::complete_path_params(path, &mut params);
    parameter::make_argument_names_unique(&mut params);
    let mut servers = [node, item].into_iter().filter_map(|it| it.get("servers"));
    Ok(OperationPlan {
        params,
        body,
        body_arguments: BodyArguments::Whole,
        servers: servers.find(|it| it.is_array() && !it.is_empty()).map(TreeNode::to_json),
        security: node.get("security").map(DocumentPart::from_node),
    })
}

impl ApiOperation {
    pub(crate) fn effects(&self) -> CallEffects {
        let method = self.method.as_str();
        let read_only = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY");
        CallEffects {
            read_only,
            destructive: method == "DELETE",
            idempotent: read_only || matches!(method, "PUT" | "DELETE"),
            open_world: true,
        }
    }

    /// Whether an earlier operation has the name that the document gives to this one.
    pub(crate) fn is_twin(&self) -> bool {
        self.id != self.original_id
    }

    /// What a call of it needs.
    pub(crate) fn read_plan(&self, document: &OpenApiDocument) -> OperationPlan {
        let (item, node) = self
            .find_path_item_and_node(document)
            .unwrap_or((document.root_node(), document.root_node()));
        // It was read before, and the document has not changed.
        build_plan(document, &self.path, item, node).unwrap_or_default()
    }

    /// Where it is in its document.
    pub(crate) fn find_node<'a>(&self, document: &'a OpenApiDocument) -> Option<TreeNode<'a>> {
        self.find_path_item_and_node(document).map(|(_, node)| node)
    }

    /// The same, after the path that it is under.
    fn find_path_item_and_node<'a>(
        &self,
        document: &'a OpenApiDocument,
    ) -> Option<(TreeNode<'a>, TreeNode<'a>)> {
        let root = document.root_node();
        let item = root.get("paths")?.get(&self.path)?;
        let item = document.resolve_node(item).ok()?;
        let more = || item.get("additionalOperations")?.get(&self.key);
        Some((item, item.get(&self.key).or_else(more)?))
    }
}

impl OperationPlan {
    pub(crate) fn params_in(&self, place: ParamLocation) -> impl Iterator<Item = &OperationParam> {
        self.params.iter().filter(move |param| param.place == place)
    }
}

/// `GET /pets/{id}/toys` as `get_pets_id_toys`.
fn derive_operation_id(method: &str, path: &str) -> String {
    let mut name = method.to_lowercase();
    for part in path.split(|it: char| !it.is_ascii_alphanumeric()).filter(|it| !it.is_empty()) {
        name.push('_');
        name.push_str(part);
    }
    name
}

/// The summary, then what the description says beyond it.
fn describe_operation(summary: &str, description: &str, node: TreeNode<'_>) -> String {
    let same = description.starts_with(summary.trim_end_matches('.'));
    let mut text = match (summary, description) {
        ("", text) | (text, "") => text.to_owned(),
        (_, description) if same => description.to_owned(),
        (summary, description) => format!("{summary}\n\n{description}"),
    };
    if node.is_field_true("deprecated") {
        text = format!("Deprecated. {text}").trim_end().to_owned();
    }
    text
}

/// With what is said about a body whose fields stand among the parameters: nothing
/// else would say it.
fn with_body_description(
    description: String,
    document: &OpenApiDocument,
    plan: &OperationPlan,
) -> String {
    let Some(body) = plan.body.as_ref().map(|body| body.description.as_str()) else {
        return description;
    };
    let says_it = description.contains(body.trim_end_matches('.'));
    if body.is_empty()
        || says_it
        || operation_input::choose_body_arguments(document, plan) == BodyArguments::Whole
    {
        return description;
    }
    format!("{description}\n\nBody: {body}").trim_start().to_owned()
}
