//! One entry of a client's file, whichever client wrote it: which keys hold what.

use std::path::Path;

use serde_json::{Map, Value as Json};
use url::Url;

use super::{ImportedServer, ReadFileFn};
use crate::client_variables::{ClientDialect, VariableScope};
use moonlark_state::env_text::parse_env_text;

/// Keys that say nothing we do not know, or something for people only.
const IGNORED_KEYS: [&str; 11] = [
    "type",
    "transport",
    "transportType",
    "source",
    "enabled",
    "disabled",
    "name",
    "description",
    "display_name",
    "bundled",
    "metadata",
];

/// The longest that our configuration takes.
const MAX_TIMEOUT_SECS: f64 = 86_400.0;

pub(super) enum ImportedServerKind {
    Starts,
    Reaches,
}

pub(super) struct EntryFields<'a> {
    entry: &'a Map<String, Json>,
    scope: &'a VariableScope<'a>,
    used: Vec<&'static str>,
}

impl<'a> EntryFields<'a> {
    pub(super) fn new(
        entry: &'a Map<String, Json>,
        scope: &'a VariableScope<'a>,
    ) -> EntryFields<'a> {
        EntryFields { entry, scope, used: IGNORED_KEYS.to_vec() }
    }

    pub(super) fn server_kind(&self) -> Result<ImportedServerKind, String> {
        let has_command = self.first_value(&COMMAND_KEYS).is_some();
        let has_url = self.first_value(&URL_KEYS).is_some();
        match (self.declared_transport(), has_command, has_url) {
            (Some("stdio" | "local") | None, true, _) => Ok(ImportedServerKind::Starts),
            (Some("http" | "sse" | "remote") | None, _, true) => Ok(ImportedServerKind::Reaches),
            (Some(word), _, true) if is_streamable_http(word) => Ok(ImportedServerKind::Reaches),
            (Some(word @ ("stdio" | "local" | "http" | "sse" | "remote")), ..) => {
                let missing = if matches!(word, "stdio" | "local") { "command" } else { "url" };
                Err(format!("its type is {word}, and it has no {missing}"))
            }
            (Some("builtin" | "platform" | "frontend" | "inline_python"), ..)
                if self.scope.dialect == ClientDialect::Goose =>
            {
                Err("it is a part of goose, and no server".to_owned())
            }
            (Some(_), ..) => Err("its type is none that is known".to_owned()),
            (None, ..) if self.entry.contains_key("settings") => {
                Err("it is an extension of Zed, and only Zed knows what it starts".to_owned())
            }
            (None, ..) if self.entry.contains_key("uses") => {
                Err("it is a block of Continue, and only Continue knows what it starts".to_owned())
            }
            (None, ..) => Err("it has neither command nor url".to_owned()),
        }
    }

    pub(super) fn read_command(
        &mut self,
        server: &mut ImportedServer,
        read_file: ReadFileFn<'_>,
    ) -> Result<(), String> {
        self.used.extend(["command", "cmd", "args", "env", "environment", "envs"]);
        self.used.extend(["cwd", "envFile", "env_vars", "env_keys"]);
        // Zed once had path, arguments and environment inside `command`.
        let inner = self.entry.get("command").and_then(Json::as_object);
        let entry = inner.unwrap_or(self.entry);
        let command = match inner {
            Some(inner) => inner.get("path"),
            None => self.first_value(&COMMAND_KEYS),
        };
        // opencode has the arguments in it.
        let (command, args) = match command {
            Some(Json::Array(line)) => (line.first(), line.get(1..).map(<[Json]>::to_vec)),
            command => (command, None),
        };
        let command = command.and_then(Json::as_str).filter(|command| !command.is_empty());
        let command = command.ok_or("its command is not a text")?;
        server.command = Some(self.scope.translate_text(command)?);
        let args = args.map(Json::Array);
        server.args = self.read_arguments(args.as_ref().or_else(|| entry.get("args")))?;
        let file = self.entry.get("envFile").and_then(Json::as_str);
        if let Some(file) = file {
            self.read_env_file(file, server, read_file)?;
        }
        server.env.extend(self.forwarded_variables());
        let env = ["env", "environment", "envs"].iter().find_map(|key| entry.get(*key));
        for (key, value) in
            self.read_text_table("env", env, &mut server.notes, VariableScope::translate_text)?
        {
            server.env.retain(|(other, _)| *other != key);
            server.env.push((key, value));
        }
        let cwd = self.entry.get("cwd").and_then(Json::as_str);
        server.cwd = match cwd.map(|cwd| self.scope.translate_text(cwd)).transpose()? {
            Some(cwd) => Some(self.resolve_in_project(&cwd)),
            None => self.cwd_for(server),
        };
        Ok(())
    }

    pub(super) fn read_address(&mut self, server: &mut ImportedServer) -> Result<(), String> {
        self.used.extend(URL_KEYS);
        self.used.extend(["headers", "http_headers", "env_http_headers", "bearer_token_env_var"]);
        let url =
            self.first_value(&URL_KEYS).and_then(Json::as_str).ok_or("its url is not a text")?;
        let url = self.scope.translate_address(url)?;
        let mut headers = Vec::new();
        for table in
            [self.entry.get("headers"), self.entry.get("http_headers"), self.request_headers()]
        {
            headers.extend(self.read_text_table(
                "headers",
                table,
                &mut server.notes,
                VariableScope::translate_address,
            )?);
        }
        headers.extend(self.headers_of_variables());
        if let Some(key) = self.entry.get("apiKey").and_then(Json::as_str) {
            self.used.push("apiKey");
            headers.push((
                "Authorization".to_owned(),
                format!("Bearer {}", self.scope.translate_text(key)?),
            ));
        }
        let own = self.own_variables(server)?;
        let url = fill_variables(&url, &own);
        server.headers =
            headers.into_iter().map(|(name, value)| (name, fill_variables(&value, &own))).collect();
        let is_address = match Url::parse(&url) {
            // What a variable holds is not known yet.
            _ if url.contains("${") => true,
            Ok(url) => matches!(url.scheme(), "http" | "https") && url.has_host(),
            Err(_) => false,
        };
        if !is_address {
            return Err("its url is no address that begins with http:// or https://".to_owned());
        }
        server.sse = self.is_sse(&url);
        server.url = Some(url);
        Ok(())
    }

    /// How long it may take, and which of its tools are wanted.
    pub(super) fn read_limits(&mut self, server: &mut ImportedServer) {
        let (per_second, seconds_key) = match self.scope.dialect {
            ClientDialect::Gemini | ClientDialect::Qwen | ClientDialect::Opencode => {
                (1000.0, "timeout")
            }
            ClientDialect::Cline | ClientDialect::Goose => (1.0, "timeout"),
            ClientDialect::Codex => (1.0, "tool_timeout_sec"),
            _ => (1.0, ""),
        };
        let (start_per_second, start_key) = if self.entry.contains_key("startup_timeout_ms") {
            (1000.0, "startup_timeout_ms")
        } else {
            (1.0, "startup_timeout_sec")
        };
        server.timeout = self.read_seconds(seconds_key, per_second);
        server.connect_timeout = self.read_seconds(start_key, start_per_second);
        server.include =
            self.read_tool_names(&["includeTools", "enabled_tools", "available_tools"]);
        server.exclude = self.read_tool_names(&["excludeTools", "disabled_tools", "disabledTools"]);
    }

    /// Keys that nothing was made of.
    pub(super) fn unused_keys(&self) -> Vec<String> {
        let says_something = |value: &Json| match value {
            Json::Null => false,
            Json::Array(items) => !items.is_empty(),
            Json::Object(members) => !members.is_empty(),
            _ => true,
        };
        let unused = |(key, value): &(&String, &Json)| {
            !self.used.contains(&key.as_str()) && says_something(value)
        };
        self.entry.iter().filter(unused).map(|(key, _)| key.clone()).collect()
    }

    /// What it says about its transport.
    fn declared_transport(&self) -> Option<&str> {
        let word = |key: &str| self.entry.get(key).and_then(Json::as_str);
        word("type").or_else(|| word("transport")).or_else(|| word("transportType"))
    }

    fn first_value(&self, keys: &[&str]) -> Option<&Json> {
        keys.iter().find_map(|key| self.entry.get(*key))
    }

    fn is_sse(&self, url: &str) -> bool {
        let path = url.split(['?', '#']).next().unwrap_or_default();
        match (self.declared_transport(), self.scope.dialect) {
            (Some("sse"), _) => true,
            (Some(word), _) if is_streamable_http(word) => false,
            // Their other transport has a key or a type of its own.
            (None, ClientDialect::Qwen) if !self.entry.contains_key("httpUrl") => true,
            (None, ClientDialect::Cline) => true,
            // Clients that find out by trying end up there as well.
            _ => path.trim_end_matches('/').ends_with("/sse"),
        }
    }

    /// Variables that are passed on under their names.
    fn forwarded_variables(&self) -> Vec<(String, String)> {
        let lists = ["env_vars", "env_keys"].iter().filter_map(|key| self.entry.get(*key));
        let name = |item: &Json| item.as_str().or_else(|| item["name"].as_str()).map(str::to_owned);
        let names = lists.filter_map(Json::as_array).flatten().filter_map(name);
        names.map(|name| (name.clone(), format!("${{{name}}}"))).collect()
    }

    /// Headers that Codex has by the name of a variable.
    fn headers_of_variables(&self) -> Vec<(String, String)> {
        let table = self.entry.get("env_http_headers").and_then(Json::as_object);
        let header = |(name, variable): (&String, &Json)| {
            Some((name.clone(), format!("${{{}}}", variable.as_str()?)))
        };
        let mut headers: Vec<_> = table.into_iter().flatten().filter_map(header).collect();
        let token = self.entry.get("bearer_token_env_var").and_then(Json::as_str);
        headers
            .extend(token.map(|name| ("Authorization".to_owned(), format!("Bearer ${{{name}}}"))));
        headers
    }

    /// Continue's headers; its other options are about certificates and proxies.
    fn request_headers(&mut self) -> Option<&'a Json> {
        let options = self.entry.get("requestOptions")?.as_object()?;
        if options.keys().all(|key| key == "headers") {
            self.used.push("requestOptions");
        }
        options.get("headers")
    }

    /// The variables that goose has for one address.
    fn own_variables(
        &mut self,
        server: &mut ImportedServer,
    ) -> Result<Vec<(String, String)>, String> {
        if self.scope.dialect != ClientDialect::Goose {
            return Ok(Vec::new());
        }
        self.used.extend(["envs", "env_keys"]);
        self.read_text_table(
            "envs",
            self.entry.get("envs"),
            &mut server.notes,
            VariableScope::translate_text,
        )
    }

    fn read_seconds(&mut self, key: &'static str, per_second: f64) -> Option<f64> {
        let seconds = self.entry.get(key)?.as_f64()? / per_second;
        let fits = seconds > 0.0 && seconds <= MAX_TIMEOUT_SECS;
        if fits {
            self.used.push(key);
        }
        fits.then_some(seconds)
    }

    /// Tools by their names; a pattern would be read differently by each.
    fn read_tool_names(&mut self, keys: &[&'static str]) -> Vec<String> {
        for key in keys {
            let Some(Json::Array(tools)) = self.entry.get(*key) else { continue };
            let is_name = |name: &&str| !name.is_empty() && !name.contains(['*', '(', ':']);
            let names: Vec<&str> = tools.iter().filter_map(Json::as_str).filter(is_name).collect();
            if names.len() == tools.len() {
                self.used.push(key);
                return names.into_iter().map(str::to_owned).collect();
            }
        }
        Vec::new()
    }

    fn read_env_file(
        &self,
        file: &str,
        server: &mut ImportedServer,
        read_file: ReadFileFn<'_>,
    ) -> Result<(), String> {
        let path = self.resolve_in_project(&self.scope.translate_text(file)?);
        let Some(text) = read_file(Path::new(&path)) else {
            // What it will hold is read when the server starts.
            server.env_file = Some(path);
            return Ok(());
        };
        let variables = parse_env_text(&text).variables.into_iter();
        server.env.extend(variables.map(|(name, value)| (name, value.replace("${", "$${"))));
        Ok(())
    }

    /// A relative path is meant from the project, wherever our file will be.
    fn resolve_in_project(&self, path: &str) -> String {
        match &self.scope.project {
            Some(project) if !path.starts_with("${") => project.join(path).display().to_string(),
            _ => path.to_owned(),
        }
    }

    /// Clients start servers in the project. That matters if a path begins there.
    fn cwd_for(&self, server: &ImportedServer) -> Option<String> {
        let project = self.scope.project.as_ref()?;
        let relative =
            |text: &String| text == "." || text.starts_with("./") || text.starts_with("../");
        let mut texts = server.command.iter().chain(&server.args);
        texts.any(relative).then(|| project.display().to_string())
    }

    fn read_arguments(&self, items: Option<&Json>) -> Result<Vec<String>, String> {
        let items = match items {
            None | Some(Json::Null) => return Ok(Vec::new()),
            Some(Json::Array(items)) => items,
            Some(_) => return Err("its args are not a list".to_owned()),
        };
        let texts = items.iter().map(|item| scalar_text(item).ok_or("its args are not all texts"));
        texts.map(|text| self.scope.translate_text(&text?)).collect()
    }

    fn read_text_table(
        &self,
        key: &str,
        table: Option<&Json>,
        notes: &mut Vec<String>,
        translate: fn(&VariableScope<'a>, &str) -> Result<String, String>,
    ) -> Result<Vec<(String, String)>, String> {
        let table = match table {
            None | Some(Json::Null) => return Ok(Vec::new()),
            Some(Json::Object(table)) => table,
            Some(_) => return Err(format!("its {key} is not an object in braces")),
        };
        let mut texts = Vec::new();
        for (name, value) in table {
            match scalar_text(value) {
                Some(text) => texts.push((name.clone(), translate(self.scope, &text)?)),
                None => notes.push(format!("{key}.{name}")),
            }
        }
        Ok(texts)
    }
}

const COMMAND_KEYS: [&str; 2] = ["command", "cmd"];

/// Where there are two, clients take the first of these.
const URL_KEYS: [&str; 4] = ["httpUrl", "serverUrl", "url", "uri"];

fn is_streamable_http(word: &str) -> bool {
    matches!(word, "streamable-http" | "streamable_http" | "streamableHttp")
}

/// `text` with the values of `variables` that it names.
fn fill_variables(text: &str, variables: &[(String, String)]) -> String {
    let fill = |text: String, (name, value): &(String, String)| {
        text.replace(&format!("${{{name}}}"), value)
    };
    variables.iter().fold(text.to_owned(), fill)
}

/// Some write numbers and true without quotes.
fn scalar_text(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(flag) => Some(flag.to_string()),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}
