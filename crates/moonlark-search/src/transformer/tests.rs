//! The tiny model of `tests/knowledge/model`, and what is none.

use super::*;

const WEIGHTS: &[u8] = include_bytes!("../../../../tests/knowledge/model/model.safetensors");
const VOCABULARY: &[u8] = include_bytes!("../../../../tests/knowledge/model/vocab.txt");
const SHAPE: &[u8] = include_bytes!("../../../../tests/knowledge/model/config.json");
const FILES: TransformerFiles<'_> =
    TransformerFiles { weights: WEIGHTS, vocabulary: VOCABULARY, shape: SHAPE };

fn embed(text: &str) -> Vec<f32> {
    TransformerModel::parse(FILES).unwrap().embed(text, &|| false).unwrap()
}

#[test]
fn a_vector_is_what_the_definition_gives() {
    // Computed by tests/knowledge/model/make.py.
    let expected = [
        0.253917, -0.042002, -0.079483, -0.103487, -0.339342, -0.074252, -0.628103, 0.224603,
        -0.203411, -0.002316, -0.185152, 0.096083, -0.044682, 0.095809, 0.406468, 0.299703,
    ];
    let vector = embed("How to UNDO a releases.");
    for (number, expected) in vector.iter().zip(expected) {
        assert!((number - expected).abs() < 2e-5, "{vector:?}");
    }
}

#[test]
fn any_text_has_a_vector_of_length_one() {
    for text in ["", "\0", "%%%", "犬", &"undo the release ".repeat(50_000), &"x".repeat(100_000)]
    {
        let length = embed(text).iter().map(|it| it * it).sum::<f32>();
        assert!((length - 1.0).abs() < 1e-4, "{text:.9}: {length}");
    }
}

#[test]
fn what_is_cancelled_stops() {
    let asked = std::cell::Cell::new(0);
    let model = TransformerModel::parse(FILES).unwrap();
    let cancelled = || {
        asked.set(asked.get() + 1);
        asked.get() > 1
    };
    assert_eq!(model.embed("undo", &cancelled), None);
    assert_eq!(asked.get(), 2);
}

fn check_fault(files: TransformerFiles<'_>, expected: &str) {
    let fault = TransformerModel::parse(files).err().map(|it| it.to_string());
    assert_eq!(fault.as_deref(), Some(expected));
}

#[test]
fn a_shape_that_cannot_be_computed_is_refused() {
    let shape = std::str::from_utf8(SHAPE).unwrap();
    for (from, to, expected) in [
        ("\"bert\"", "\"llama\"", "config.json: model_type is \"llama\"; only \"bert\" can be run"),
        (
            "\"gelu\"",
            "\"relu\"",
            "config.json: hidden_act is \"relu\"; only \"gelu\" can be computed",
        ),
        (
            "\"num_attention_heads\": 4",
            "\"num_attention_heads\": 3",
            "config.json: hidden_size 16 is no multiple of num_attention_heads 3",
        ),
        (
            "\"hidden_size\": 16",
            "\"hidden_size\": 99999999999",
            "config.json: hidden_size has to be a number from 1 to 1024",
        ),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 3",
            "the weights: encoder.layer.2.attention.self.query.weight is missing",
        ),
        (
            "\"hidden_size\": 16",
            "\"hidden_size\": 8",
            "the weights: embeddings.word_embeddings.weight has another shape than [34, 8]",
        ),
        (
            "\"vocab_size\": 34",
            "\"vocab_size\": 30",
            "the vocabulary has a piece numbered 30, and the weights have 30 rows",
        ),
    ] {
        let changed = shape.replace(from, to);
        assert_ne!(changed, shape);
        check_fault(TransformerFiles { shape: changed.as_bytes(), ..FILES }, expected);
    }
}

#[test]
fn weights_that_are_cut_off_or_lie_are_refused() {
    let with = |weights: &[u8], expected: &str| {
        check_fault(TransformerFiles { weights, ..FILES }, expected)
    };
    with(b"", "the weights are no safetensors: too short");
    with(&[0xff; 32], "the weights are no safetensors: their heading is too long");
    with(
        &[9, 0, 0, 0, 0, 0, 0, 0, b'{'],
        "the weights are no safetensors: their heading is cut off",
    );
    with(
        &WEIGHTS[..WEIGHTS.len() - 1],
        "the weights: encoder.layer.1.output.LayerNorm.bias lies outside of the file",
    );
    let heading_bytes = usize::from(WEIGHTS[0]) + 256 * usize::from(WEIGHTS[1]);
    let mut broken = WEIGHTS.to_vec();
    broken[8 + heading_bytes..8 + heading_bytes + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    with(&broken, "the weights: embeddings.word_embeddings.weight has numbers that are none");
    for (from, to, expected) in [
        (
            "\"data_offsets\": [0, 2176]",
            "\"data_offsets\": [2176, 0]",
            "the weights: embeddings.word_embeddings.weight lies outside of the file",
        ),
        (
            "\"data_offsets\": [0, 2176]",
            "\"data_offsets\": [0, 2177]",
            "the weights: embeddings.word_embeddings.weight has more or fewer numbers than its shape",
        ),
        (
            "\"dtype\": \"F32\", \"shape\": [34, 16]",
            "\"dtype\": \"I64\", \"shape\": [34, 16]",
            "the weights: embeddings.word_embeddings.weight is of no type that can be read: F32, F16, BF16",
        ),
    ] {
        let heading = std::str::from_utf8(&WEIGHTS[8..8 + heading_bytes]).unwrap();
        let changed = heading.replacen(from, to, 1);
        assert_ne!(changed, heading, "{from}");
        let mut file = (changed.len() as u64).to_le_bytes().to_vec();
        file.extend(changed.as_bytes());
        file.extend(&WEIGHTS[8 + heading_bytes..]);
        with(&file, expected);
    }
}

/// Bytes that look random and are always the same.
#[test]
fn no_damage_crashes_it() {
    let mut state = 7_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    for _ in 0..300 {
        let (mut weights, mut shape) = (WEIGHTS.to_vec(), SHAPE.to_vec());
        for _ in 0..4 {
            let (at, byte) = (next(3_000), next(256) as u8);
            weights[at] = byte;
            let (at, byte) = (next(shape.len()), b"0123456789{}\",: "[next(16)]);
            shape[at] = byte;
        }
        let files = TransformerFiles { weights: &weights, vocabulary: VOCABULARY, shape: SHAPE };
        for files in [files, TransformerFiles { shape: &shape, ..FILES }] {
            if let Ok(model) = TransformerModel::parse(files) {
                model.embed("undo the release", &|| false).unwrap();
            }
        }
    }
}
