//! A schema compiled for checking values, in bounded time and memory whatever it says.

use jsonschema::{Draft, FancyRegex, PatternOptions, ValidationOptions, Validator};
use serde_json::Value as Json;

use super::complexity::SchemaComplexity;
use super::step_budget::{SchemaVerdict, add_counting_keyword, check_counted, with_counted_steps};

/// Of one pattern as it is compiled, and of what it remembers while it is used.
const MAX_PATTERN_BYTES: usize = 2 << 20;
/// Of one pattern with look-around or references, for one text.
const MAX_PATTERN_BACKTRACKS: usize = 100_000;

pub(super) struct CompiledSchema {
    pub(super) validator: Validator,
    pub(super) complexity: SchemaComplexity,
}

impl CompiledSchema {
    /// Without a draft, the schema's own is taken.
    pub(super) fn compile(schema: &Json, draft: Option<Draft>) -> Result<CompiledSchema, String> {
        let complexity = SchemaComplexity::measure_schema(schema);
        let mut options = jsonschema::options().with_pattern_options(pattern_options());
        if let Some(draft) = draft {
            options = options.with_draft(draft);
        }
        let validator = if complexity.needs_step_budget {
            build_validator(add_counting_keyword(options), &with_counted_steps(schema))?
        } else {
            build_validator(options, schema)?
        };
        Ok(CompiledSchema { validator, complexity })
    }

    pub(super) fn check_value(&self, json: &Json) -> SchemaVerdict {
        if self.complexity.needs_step_budget {
            check_counted(&self.validator, json)
        } else if self.validator.is_valid(json) {
            SchemaVerdict::Fits
        } else {
            SchemaVerdict::DoesNotFit
        }
    }
}

fn build_validator(options: ValidationOptions<'_>, schema: &Json) -> Result<Validator, String> {
    options.build(schema).map_err(|error| error.to_string())
}

/// What every pattern of a schema may take: they meet whatever callers send.
fn pattern_options() -> PatternOptions<FancyRegex> {
    PatternOptions::fancy_regex()
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES)
        .backtrack_limit(MAX_PATTERN_BACKTRACKS)
}
