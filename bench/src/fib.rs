//! A script that computes: what the limits cost where they are not reached.

use std::time::Instant;

use anyhow::{Result, ensure};
use mlua::{Function, Lua, Table};
use moonlark_core::Value;

use super::calls::Engine;
use super::report::{Row, Section, millis, times};
use super::rounds::median;
use super::{Effort, machine};

/// The same text runs in both; a local function is what Luau is fastest at, a
/// global one what people write.
fn script(keyword: &str) -> String {
    format!(
        r#"
{keyword} fib(n)
    if n < 2 then return n end
    return fib(n - 1) + fib(n - 2)
end

tool = {{ name = "fib", description = "Computes" }}

function tool.execute()
    return {{ fib = fib(27) }}
end
"#
    )
}

const FIB: i64 = 196_418;

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    eprintln!("fib …");
    let rounds = effort.rounds.max(3) * 6;
    let local = compare("local function", rounds)?;
    let global = compare("function", rounds)?;
    let row = |what: &str, ours: f64, floor: f64| {
        Row::new(what).ratio(times(ours / floor)).figures(millis(ours), millis(floor))
    };
    Ok(vec![Section {
        title: "A script that computes",
        about: "fib(27) in a tool, with every limit in force, against the same text in plain \
                Luau through mlua, with none. Wall time.",
        rows: vec![
            row("against optimisation level 2, as ours", local.ours, local.level_2)
                .goal("≤ 1.15 ×", local.ours / local.level_2 <= 1.15),
            row("against mlua's default level", local.ours, local.level_1)
                .goal("≤ 1.15 ×", local.ours / local.level_1 <= 1.15),
            row("fib as a global function, level 2", global.ours, global.level_2),
            row("fib as a global function, mlua's default level", global.ours, global.level_1),
        ],
    }])
}

/// Medians, in seconds.
struct Times {
    ours: f64,
    level_2: f64,
    level_1: f64,
}

fn compare(keyword: &str, rounds: u32) -> Result<Times> {
    let text = script(keyword);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let engine = Engine::with(&runtime, vec![text.clone()])?;
    let (level_2, level_1) = (Plain::new(&text, Some(2))?, Plain::new(&text, None)?);
    let mut all = Vec::new();
    machine::quiet();
    for _ in 0..rounds {
        all.push((ours(&engine, &runtime)?, level_2.run()?, level_1.run()?));
    }
    Ok(Times {
        ours: median(all.iter().map(|times| times.0)),
        level_2: median(all.iter().map(|times| times.1)),
        level_1: median(all.iter().map(|times| times.2)),
    })
}

fn ours(engine: &Engine, runtime: &tokio::runtime::Runtime) -> Result<f64> {
    let began = Instant::now();
    let result = runtime.block_on(engine.call(Value::from_fields([])))?;
    let took = began.elapsed();
    ensure!(
        matches!(result.get("fib"), Some(Value::Int(FIB)))
            || result.get("fib") == Some(&Value::Float(FIB as f64)),
        "wrong result"
    );
    Ok(took.as_secs_f64())
}

/// The script in a VM of its own, without sandbox or limits.
struct Plain {
    _lua: Lua,
    execute: Function,
}

impl Plain {
    fn new(text: &str, level: Option<u8>) -> Result<Plain> {
        let lua = Lua::new();
        let chunk = lua.load(text);
        match level {
            Some(level) => {
                let compiler = mlua::chunk::Compiler::new().set_optimization_level(level);
                chunk.set_compiler(compiler).exec()?;
            }
            None => chunk.exec()?,
        }
        let execute = lua.globals().get::<Table>("tool")?.get("execute")?;
        Ok(Plain { _lua: lua, execute })
    }

    fn run(&self) -> Result<f64> {
        let began = Instant::now();
        let result: Table = self.execute.call(())?;
        let took = began.elapsed();
        ensure!(result.get::<i64>("fib")? == FIB, "wrong result");
        Ok(took.as_secs_f64())
    }
}
