//! The table: rules, and what does not exist under them for whom.

/// Rules as an operator writes them, and for each caller the tools that are not
/// there. All others are.
pub type Rows = (&'static str, &'static [(&'static str, &'static str)]);

const ALL: &str = "quarterly_report wipe_disk relay git-box.list-issues git-box.delete_branch mailer.send petshop.listPets petshop.deletePet execute search_docs list_functions get_function_docs";

pub const TABLE: [Rows; 29] = [
    ("", &[("anonymous", ""), ("ci", "")]),
    // By name, in every spelling.
    (
        r#"{ tools = ["git-box.delete_branch"], action = "deny" }"#,
        &[("anonymous", "git-box.delete_branch")],
    ),
    (
        r#"{ tools = ["git_box.list_issues"], action = "deny" }"#,
        &[("anonymous", "git-box.list-issues")],
    ),
    (
        r#"{ tools = ["git-box__list-issues"], action = "deny" }"#,
        &[("anonymous", "git-box.list-issues")],
    ),
    (r#"{ tools = ["tools.wipe_disk"], action = "deny" }"#, &[("anonymous", "wipe_disk")]),
    // By pattern.
    (
        r#"{ tools = ["git-box.*"], action = "deny" }"#,
        &[("anonymous", "git-box.list-issues git-box.delete_branch")],
    ),
    (
        r#"{ tools = ["*.delete*"], action = "deny" }"#,
        &[("anonymous", "git-box.delete_branch petshop.deletePet")],
    ),
    (
        r#"{ tools = ["*_report", "mailer.send"], action = "deny" }"#,
        &[("anonymous", "quarterly_report mailer.send")],
    ),
    // By what it does.
    (
        r#"{ effects = ["destructive"], action = "deny", kinds = ["upstream", "api", "script"] }"#,
        &[("anonymous", "wipe_disk relay git-box.delete_branch mailer.send petshop.deletePet")],
    ),
    // A script does nothing but call, and its calls are judged one by one.
    (
        r#"{ effects = ["destructive"], action = "deny" }"#,
        &[("anonymous", "wipe_disk relay git-box.delete_branch mailer.send petshop.deletePet")],
    ),
    (
        r#"{ effects = ["writes"], callers = ["ci"], action = "deny" }"#,
        &[
            ("anonymous", ""),
            ("ci", "wipe_disk relay git-box.delete_branch mailer.send petshop.deletePet"),
        ],
    ),
    (r#"{ effects = ["writes"], kinds = ["builtin"], action = "deny" }"#, &[("anonymous", "")]),
    (r#"{ tools = ["exec*"], action = "deny" }"#, &[("anonymous", "execute")]),
    (
        r#"{ kinds = ["builtin"], action = "deny" }"#,
        &[("anonymous", "execute search_docs list_functions get_function_docs")],
    ),
    (
        r#"{ effects = ["writes"], action = "deny", kinds = ["api"] }"#,
        &[("anonymous", "petshop.deletePet")],
    ),
    (
        r#"{ effects = ["read-only"], action = "deny", kinds = ["upstream"] }"#,
        &[("anonymous", "git-box.list-issues")],
    ),
    (
        r#"{ effects = ["idempotent"], kinds = ["api"], action = "deny" }"#,
        &[("anonymous", "petshop.listPets petshop.deletePet")],
    ),
    // By where it comes from.
    (
        r#"{ kinds = ["script"], action = "deny" }"#,
        &[("anonymous", "quarterly_report wipe_disk relay")],
    ),
    (
        r#"{ kinds = ["api", "upstream"], action = "deny" }"#,
        &[(
            "anonymous",
            "git-box.list-issues git-box.delete_branch mailer.send petshop.listPets petshop.deletePet execute search_docs list_functions get_function_docs",
        )],
    ),
    (
        r#"{ sources = ["petshop"], action = "deny" }"#,
        &[("anonymous", "petshop.listPets petshop.deletePet")],
    ),
    (
        r#"{ sources = ["git_box", "tools/wipe.luau"], action = "deny" }"#,
        &[("anonymous", "git-box.list-issues git-box.delete_branch wipe_disk")],
    ),
    // By who calls.
    (
        r#"{ callers = ["ci"], tools = ["mailer.*"], action = "deny" }"#,
        &[("anonymous", ""), ("ci", "mailer.send"), ("ci-2", "")],
    ),
    (
        r#"{ callers = ["anonymous", "bot-*"], effects = ["writes"], kinds = ["upstream"], action = "deny" }"#,
        &[
            ("anonymous", "git-box.delete_branch mailer.send"),
            ("bot-7", "git-box.delete_branch mailer.send"),
            ("alice", ""),
        ],
    ),
    (
        r#"{ callers = ["alice"] }, { kinds = ["upstream", "api", "script"], action = "deny" }"#,
        &[
            ("alice", ""),
            (
                "anonymous",
                "quarterly_report wipe_disk relay git-box.list-issues git-box.delete_branch mailer.send petshop.listPets petshop.deletePet execute search_docs list_functions get_function_docs",
            ),
        ],
    ),
    // The first that matches decides.
    (
        r#"{ tools = ["git-box.list-issues"] }, { tools = ["git-box.*"], action = "deny" }"#,
        &[("anonymous", "git-box.delete_branch")],
    ),
    (
        r#"{ tools = ["git-box.*"], action = "deny" }, { tools = ["git-box.list-issues"] }"#,
        &[("anonymous", "git-box.list-issues git-box.delete_branch")],
    ),
    (
        r#"{ kinds = ["builtin"] }, { effects = ["read-only"] }, { tools = ["relay"] }, { action = "deny" }"#,
        &[
            ("anonymous", "wipe_disk git-box.delete_branch mailer.send petshop.deletePet"),
            ("ci", "wipe_disk git-box.delete_branch mailer.send petshop.deletePet"),
        ],
    ),
    // Whatever else a rule says, the tool is there.
    (
        r#"{ tools = ["mailer.*"], rate = "1000/s", concurrency = 2, timeout = "30s", per = "source" }, { effects = ["read-only"], cache = "1ms" }, { callers = ["ci"], action = "deny" }"#,
        &[
            ("anonymous", ""),
            ("ci", "wipe_disk relay git-box.delete_branch petshop.deletePet execute"),
        ],
    ),
    (r#"{ action = "deny" }"#, &[("anonymous", ALL), ("ci", ALL)]),
];
