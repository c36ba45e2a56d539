//! A job that an agent does again and again, in tokens: sent as a script each time, and saved
//! once and called by its name.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::tokens::{Agent, Counter};

/// How often the job is done.
const TIMES: usize = 20;

const CONFIG: &str = "[execute]\nallow = [\"tool:*\", \"scripts:write\"]\n";
const ORDERS: &str = "tool = { name = \"orders\", description = \"The orders of a customer\",\n\
    parameters = { { name = \"customer\", type = \"integer\", required = true } },\n\
    annotations = { read_only = true } }\n\
    function tool.execute(params)\n\
    return { orders = { { total = params.customer, paid = true }, { total = 5, paid = false } } }\n\
    end\n";

/// As agents write them: a report over what several calls gave.
const BODY: &str = "local totals = map_parallel(params.customers, function(id)\n\
    \x20   local open, paid = 0, 0\n\
    \x20   for _, order in sdk.tools.orders({ customer = id }).orders do\n\
    \x20       if order.paid then paid += order.total else open += order.total end\n\
    \x20   end\n\
    \x20   return { customer = id, open = open, paid = paid }\n\
    end)\n\
    table.sort(totals, function(a, b) return a.open + a.paid > b.open + b.paid end)\n\
    local sum = 0\n\
    for _, total in totals do sum += total.open end\n\
    return { most = totals[1].customer, open = sum }\n";

/// The section of the report.
pub(super) fn section(counter: &Counter) -> Result<String> {
    let mut agent = Agent::start_with(CONFIG, &[("tools/orders.lua", ORDERS)])?;
    let (mut sent, mut saved) = (0, 0);
    for round in 0..TIMES {
        let customers = [round + 1, round + 2, round + 3];
        let [a, b, c] = customers;
        let script = format!("local params = {{ customers = {{ {a}, {b}, {c} }} }}\n{BODY}");
        sent += cost(&mut agent, counter, "execute", json!({"script": script}))?;
    }
    let script = format!(
        "--! name: open_orders\n--! description: Who ordered most, and what is open\n\
         --! parameter customers: {{integer}}\n{BODY}"
    );
    let save = cost(&mut agent, counter, "save_script", json!({"script": script}))?;
    for round in 0..TIMES {
        let arguments = json!({"customers": [round + 1, round + 2, round + 3]});
        let asked = json!({"script": "", "saved": "open_orders", "arguments": arguments});
        saved += cost(&mut agent, counter, "execute", asked)?;
    }
    let tools = agent.ask("tools/list", json!({}))?;
    let own = ["save_script", "list_scripts", "show_script", "restore_script", "remove_script"];
    let listed: usize = tools["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|tool| own.iter().any(|name| tool["name"] == *name))
        .map(|tool| counter.count(&tool.to_string()))
        .sum();
    ensure!(listed > 0, "the tools to save with are not listed");
    let mut text = String::new();
    writeln!(text, "\n## A job that is repeated\n")?;
    writeln!(
        text,
        "The same report {TIMES} times with other arguments: the script sent each time, and saved \
         once and called by its name. What the agent writes and reads of its calls; the five tools \
         to save with are in its context besides.\n"
    )?;
    writeln!(text, "| | tokens |\n|---|---|")?;
    writeln!(text, "| {TIMES} times the script | {sent} |")?;
    writeln!(text, "| saved once | {save} |")?;
    writeln!(text, "| {TIMES} times by its name | {saved} |")?;
    writeln!(text, "| the five tools, in every context | {listed} |")?;
    writeln!(
        text,
        "| saved, as a share of sent | {:.0} % |",
        (save + saved) as f64 / sent as f64 * 100.0
    )?;
    Ok(text)
}

/// What an agent writes to call a tool, and reads of its answer.
fn cost(agent: &mut Agent, counter: &Counter, tool: &str, arguments: Value) -> Result<usize> {
    let written = counter.count(&arguments.to_string());
    Ok(written + counter.count(&agent.call(tool, arguments)?))
}
