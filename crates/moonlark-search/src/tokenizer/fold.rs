//! Folding of letters: without case, without marks, one width.

use unicode_normalization::char::decompose_canonical;

/// The letters of a word, in place of what was in `plain`.
pub(crate) fn fold_letters(word: &str, plain: &mut String) {
    plain.clear();
    if word.is_ascii() {
        plain.push_str(word);
        plain.make_ascii_lowercase();
        return;
    }
    for letter in word.chars() {
        if letter.is_ascii() {
            plain.push(letter.to_ascii_lowercase());
        } else {
            narrow_letter(letter)
                .to_lowercase()
                .for_each(|letter| push_without_mark(letter, plain));
        }
    }
}

/// Marks that are letters of their own in the text: `u` and then two dots.
pub(super) fn is_combining_mark(letter: char) -> bool {
    matches!(letter, '\u{0300}'..='\u{036f}')
}

fn push_without_mark(letter: char, plain: &mut String) {
    match letter {
        'ß' => plain.push_str("ss"),
        'æ' => plain.push_str("ae"),
        'œ' => plain.push_str("oe"),
        'ø' => plain.push('o'),
        'đ' | 'ð' => plain.push('d'),
        'ł' => plain.push('l'),
        'ı' => plain.push('i'),
        'þ' => plain.push_str("th"),
        // Greek, Cyrillic and Latin come apart; in other scripts, such as kana
        // and Hangul, a part alone is another letter.
        '\u{00c0}'..='\u{052f}' | '\u{1e00}'..='\u{1fff}' => {
            decompose_canonical(letter, |part| {
                if !is_combining_mark(part) {
                    plain.push(part);
                }
            });
        }
        letter => plain.push(letter),
    }
}

/// Latin letters as wide as ideographs.
fn narrow_letter(letter: char) -> char {
    match letter {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(letter as u32 - 0xfee0).unwrap_or(letter),
        letter => letter,
    }
}
