//! Scripts for forks, each from a number: calls in turn and at once, failures that are
//! caught and such that are not, pictures, questions, prints, chance and clocks.

use std::fmt::Write;

/// A script, and how its tools take their time.
pub(super) fn script(seed: u64) -> String {
    let mut writing = GeneratedScriptText { text: String::new(), dice: seed, number: 0 };
    writing.text.push_str("local out, later = {}, {}\n");
    for _ in 0..writing.roll(5) + 1 {
        writing.write_line(0);
    }
    let end = match writing.roll(12) {
        0 => "error('it ends badly')",
        1 => "return sdk.shop.fail({ id = 'last' })",
        2 => "result(out)",
        3 => "return string.rep('long ', 4000)",
        4 => "return sdk.shop.picture({ id = 'last' })",
        5 => "return 'done'",
        _ => "for key, promise in later do out[key] = promise:await().got end\nreturn out",
    };
    writing.text.push_str(end);
    writing.text
}

struct GeneratedScriptText {
    text: String,
    dice: u64,
    /// Calls of one number are alike: some scripts make them twice.
    number: u64,
}

impl GeneratedScriptText {
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice =
            self.dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.dice >> 33) % sides
    }

    fn tool(&mut self) -> &'static str {
        ["put", "read", "look", "set", "put", "read", "chat", "ask"][self.roll(8) as usize]
    }

    fn write_line(&mut self, depth: usize) {
        // Now and then the same arguments again.
        self.number += u64::from(self.roll(6) > 0);
        let n = self.number;
        let kinds = if depth < 2 { 16 } else { 12 };
        let kind = self.roll(kinds);
        let tool = self.tool();
        let text = match kind {
            0..=2 => format!("out['k{n}'] = sdk.shop.{tool}({{ id = {n} }}).got"),
            3 => format!("local ok, why = pcall(sdk.shop.fail, {{ id = {n} }}) print(ok, why)"),
            4 => {
                let other = self.tool();
                format!(
                    "out['k{n}'] = #await_all({{ shop.{tool}({{ id = {n} }}), shop.{other}({{ id = {n} }}), shop.read({{ id = {n} }}) }})"
                )
            }
            5 => format!(
                "out['k{n}'] = select(2, await_any({{ shop.{tool}({{ id = {n} }}), shop.put({{ id = -{n} }}) }}))"
            ),
            6 => format!("later['k{n}'] = shop.{tool}({{ id = {n} }})"),
            // Nobody waits for these.
            7 => format!("shop.fail({{ id = {n} }}) shop.put({{ id = {n}, alone = true }})"),
            8 => format!("out['k{n}'] = math.random(1, 1e9) print(tostring({{}}), os.clock())"),
            9 => format!(
                "sdk.shop.put({{ id = {n}, now = os.clock(), time = os.time() }}) print('at {n}')"
            ),
            10 => format!(
                "local seen = sdk.shop.picture({{ id = {n} }}) out['k{n}'] = seen print(seen)"
            ),
            11 => "sleep(0)".to_owned(),
            12 | 13 => return self.write_map(depth, n),
            14 => return self.write_block(depth, "coroutine.wrap(function()", "end)()"),
            _ => format!(
                "local fine, errors = map_parallel({{ 1, 2, 3 }}, function(item) if item == 2 then return sdk.shop.fail({{ id = {n} }}) end return sdk.shop.{tool}({{ id = {n}, item = item }}).got end) print(#errors, fine[1])"
            ),
        };
        let _ = writeln!(self.text, "{text}");
    }

    fn write_map(&mut self, depth: usize, n: u64) {
        let limit = self.roll(3) + 1;
        let open = format!("map_parallel({{ {n}, {}, {} }}, function(item)", n + 1, n + 2);
        self.write_block(depth, &open, &format!("end, {{ limit = {limit} }})"));
    }

    fn write_block(&mut self, depth: usize, open: &str, close: &str) {
        let _ = writeln!(self.text, "{open}");
        for _ in 0..self.roll(2) + 1 {
            self.write_line(depth + 1);
        }
        let _ = writeln!(self.text, "{close}");
    }
}
