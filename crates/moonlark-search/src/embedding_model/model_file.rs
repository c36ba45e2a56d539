//! The file of the model: a heading, the vocabulary, scales, rows.

use super::StaticEmbeddingModel;
use super::wordpiece::WordPieceTokenizer;

static MODEL_FILE: &[u8] = include_bytes!("../../model/moonlark-static-2.bin");

/// `MLS4`, then three numbers: pieces, dimensions, bytes of the vocabulary. All
/// numbers are little-endian.
const MODEL_HEADER_BYTES: usize = 16;

/// The model that was built in. A test looks at the file, so that what is
/// missing here is missing in no build that anybody runs.
pub(super) fn load_builtin() -> StaticEmbeddingModel {
    parse_model(MODEL_FILE).unwrap_or_default()
}

fn parse_model(file: &'static [u8]) -> Option<StaticEmbeddingModel> {
    let number = |at: usize| {
        let bytes = file.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if file.get(..4)? != b"MLS4" {
        return None;
    }
    let (pieces, dimensions, letters) = (number(4)?, number(8)?, number(12)?);
    let rest = file.get(MODEL_HEADER_BYTES..)?;
    let (vocabulary, rest) = rest.split_at_checked(letters)?;
    let (scales, rows) = rest.split_at_checked(pieces * 4)?;
    if dimensions % 2 != 0 || rows.len() != pieces * (dimensions / 2) {
        return None;
    }
    let scales = scales.as_chunks::<4>().0.iter().map(|it| f32::from_le_bytes(*it)).collect();
    let pieces = WordPieceTokenizer::new(std::str::from_utf8(vocabulary).ok()?);
    Some(StaticEmbeddingModel { pieces, rows, scales, dimensions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole() {
        let model = parse_model(MODEL_FILE).unwrap();
        assert_eq!((model.dimensions, model.scales.len()), (256, 53_156));
        assert!(model.scales.iter().all(|it| it.is_finite() && *it >= 0.0));
    }

    #[test]
    fn a_file_that_is_not_whole_is_none() {
        assert!(parse_model(b"").is_none());
        assert!(parse_model(b"MLSX\0\0\0\0\0\0\0\0\0\0\0\0").is_none());
        assert!(parse_model(&MODEL_FILE[..MODEL_FILE.len() - 1]).is_none());
    }
}
