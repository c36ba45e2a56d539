use super::*;

fn stem(language: TextLanguage, word: &str) -> String {
    let mut plain = String::new();
    fold_letters(word, &mut plain);
    language.stem_word(word, &mut plain);
    plain
}

#[test]
fn a_page_is_told_by_its_small_words() {
    for (text, expected) in [
        ("The service is restarted by hand, and the queue has to be empty before that.", "en"),
        (
            "Rechnungen werden nach der Lieferung verschickt und sind in zwei Wochen zu zahlen.",
            "de",
        ),
        (
            "Les factures sont envoyées après la livraison et doivent être payées dans les deux semaines.",
            "fr",
        ),
        ("Las facturas se envían después de la entrega y deben pagarse en dos semanas.", "es"),
        ("As faturas são enviadas depois da entrega e devem ser pagas em duas semanas.", "pt"),
        ("Le fatture sono inviate dopo la consegna e si pagano entro due settimane.", "it"),
        (
            "De facturen worden na de levering verstuurd en moeten in twee weken betaald worden.",
            "nl",
        ),
        ("Счета отправляются после доставки, и их нужно оплатить в течение двух недель.", "ru"),
        (
            "Fakturorna skickas efter leveransen och ska betalas inom två veckor av den som har köpt.",
            "sv",
        ),
        (
            "Fakturaene sendes etter leveringen og skal betales innen to uker av den som har kjøpt noe.",
            "no",
        ),
        (
            "Faktury są wysyłane po dostawie i należy je zapłacić w ciągu dwóch tygodni, jeśli nie ma sporu.",
            "pl",
        ),
        ("請求書は納品後に送付され、二週間以内にお支払いいただきます。", "ja"),
        ("发票在交货后寄出，须在两周内付款。", "zh"),
        ("송장은 배송 후에 발송되며 2주 이내에 지불해야 합니다.", "ko"),
        ("fn main() { let mut de = la + el; println!(\"{}\", de); return 0; }", "en"),
        ("Билеты бронирует агентство.", "ru"),
        ("Рахунки надсилаються після доставки, і їх треба сплатити.", "en"),
        ("README", "en"),
        ("", "en"),
        ("Die hard fans of the MIT licence use the DER format in an app.", "en"),
    ] {
        assert_eq!(TextLanguage::detect(text).code(), expected, "{text}");
    }
}

#[test]
fn forms_of_a_word_have_one_stem_in_their_language() {
    for (language, one, other) in [
        (TextLanguage::German, "Rechnungen", "Rechnung"),
        (TextLanguage::German, "Häuser", "Haus"),
        (TextLanguage::French, "annulations", "annulation"),
        (TextLanguage::French, "remboursé", "rembourser"),
        (TextLanguage::Spanish, "devoluciones", "devolución"),
        (TextLanguage::Portuguese, "devoluções", "devolução"),
        (TextLanguage::Italian, "fatture", "fattura"),
        (TextLanguage::Russian, "счетов", "счета"),
        (TextLanguage::Russian, "доставки", "доставка"),
        (TextLanguage::Swedish, "leveranserna", "leveranser"),
    ] {
        assert_eq!(stem(language, one), stem(language, other), "{one} {other}");
    }
    assert_eq!(stem(TextLanguage::English, "invoices"), "invoic");
    // Letters with a mark of their own are those with one.
    assert_eq!(
        stem(TextLanguage::French, "re\u{301}pe\u{301}te\u{301}"),
        stem(TextLanguage::French, "répété")
    );
    // What is no word stays as it is.
    assert_eq!(stem(TextLanguage::French, "v2"), "v2");
}

#[test]
fn a_question_is_read_first_in_the_language_that_it_looks_like() {
    use TextLanguage::{Chinese, English, French, German, Spanish};
    let known = [English, Chinese, German, French];
    let order = |question| TextLanguage::order_by_question(question, &known);
    assert_eq!(order("comment annuler une commande"), [French, English, German]);
    assert_eq!(order("wie kündige ich meinen Vertrag"), [German, English, French]);
    assert_eq!(order("cancel an order"), [English, German, French]);
    assert_eq!(
        TextLanguage::order_by_question("devolución", &[Spanish, English]),
        [Spanish, English]
    );
    assert_eq!(order("取消订单"), [English, German, French]);
    let known = [English, German, TextLanguage::Russian];
    let order = TextLanguage::order_by_question("Билеты", &known);
    assert_eq!(order, [TextLanguage::Russian, English, German]);
    assert_eq!(TextLanguage::order_by_question("cancel", &[]), []);
}

#[test]
fn every_language_has_one_code() {
    for (at, language) in TextLanguage::ALL_LANGUAGES.into_iter().enumerate() {
        assert_eq!(language as usize, at);
        assert_eq!(TextLanguage::from_code(language.code()), Some(language));
    }
    assert_eq!(TextLanguage::from_code("xx"), None);
}

/// Words that look random, and are the same in every run.
#[test]
fn no_word_crashes_a_stemmer() {
    let letters: Vec<char> =
        "aeiounrstlkdàâäåæçèéêëíîïñóôöøúüßşğıłżőűабвгдеёийклмноптуыьяэ".chars().collect();
    let mut state = 5_u64;
    for _ in 0..20_000 {
        let word: String = (0..1 + state as usize % 14)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                letters[(state >> 33) as usize % letters.len()]
            })
            .collect();
        for language in TextLanguage::ALL_LANGUAGES {
            assert!(stem(language, &word).len() <= 3 * word.len(), "{word}");
        }
    }
}
