//! The characters of a PDF with their places, page by page.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{
    Dictionary, Document, MediaBox, Object, OutputDev, OutputError, Transform, output_doc_page,
};

use super::pdf_layout::{self, PdfLine};
use super::{PdfAnswer, PdfContent};

/// Bytes of a title or a name.
const MAX_INFO_FIELD_BYTES: usize = 500;
/// Lines of one document: what is longer is not made of lines.
const MAX_PDF_LINES: usize = 2_000_000;

/// A panic in the library costs the page it happens on.
pub(super) fn read_pdf(bytes: &[u8], most_pages: usize) -> PdfAnswer {
    let loaded = catch_unwind(|| Document::load_mem(bytes));
    let mut document = match loaded {
        Ok(Ok(document)) => document,
        Ok(Err(error)) => return PdfAnswer::Damaged(error.to_string()),
        Err(_) => return PdfAnswer::Damaged("it cannot be followed".to_owned()),
    };
    if document.is_encrypted() {
        let open = catch_unwind(AssertUnwindSafe(|| document.decrypt("")));
        if !matches!(open, Ok(Ok(()))) {
            return PdfAnswer::Skipped("it is protected by a password".to_owned());
        }
    }
    let pages = catch_unwind(AssertUnwindSafe(|| document.get_pages())).unwrap_or_default();
    if pages.is_empty() {
        return PdfAnswer::Damaged("it has no pages".to_owned());
    }
    if pages.len() > most_pages {
        return PdfAnswer::Skipped(format!("it has more than {most_pages} pages"));
    }
    let mut lines = PdfLineCollector::default();
    let mut missing = 0;
    for number in pages.keys() {
        let page = AssertUnwindSafe(|| output_doc_page(&document, &mut lines, *number));
        missing += u32::from(!matches!(catch_unwind(page), Ok(Ok(()))));
        lines.finish_line();
    }
    let count = pages.len() as u32;
    let blocks = pdf_layout::layout_blocks(lines.done);
    match blocks.is_empty() {
        true if missing == count => PdfAnswer::Damaged("none of its pages can be read".to_owned()),
        true => PdfAnswer::Skipped("there is no text in it, only pictures".to_owned()),
        false => {
            let info = AssertUnwindSafe(|| {
                (find_info_field(&document, b"Title"), find_info_field(&document, b"Author"))
            });
            let (title, author) = catch_unwind(info).unwrap_or_default();
            // What Word and browsers put there is the name of a file.
            let title = title.filter(|it| !it.contains("Microsoft Word") && it != "untitled");
            PdfAnswer::Paper(PdfContent { title, author, pages: count, missing, blocks })
        }
    }
}

/// A field of what the document says about itself.
fn find_info_field(document: &Document, key: &[u8]) -> Option<String> {
    let info: &Dictionary = match document.trailer.get(b"Info").ok()? {
        Object::Dictionary(info) => info,
        Object::Reference(id) => document.get_dictionary(*id).ok()?,
        _ => return None,
    };
    let Object::String(bytes, _) = info.get(key).ok()? else { return None };
    let text = match bytes.strip_prefix(b"\xfe\xff") {
        Some(wide) => encoding_rs::UTF_16BE.decode_without_bom_handling(wide).0,
        None => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => encoding_rs::WINDOWS_1252.decode_without_bom_handling(bytes).0,
        },
    };
    let text: String = text.chars().filter(|char| !char.is_control()).collect();
    let text = text.trim().trim_start_matches('\u{feff}');
    (!text.is_empty() && text.len() <= MAX_INFO_FIELD_BYTES).then(|| text.to_owned())
}

#[derive(Default)]
struct PdfLineCollector {
    done: Vec<PdfLine>,
    open: Option<PdfLine>,
    page: u32,
    /// Where the last character ended.
    end: f64,
    /// A string begins: a gap before it may be a space.
    gap: bool,
}

impl PdfLineCollector {
    fn finish_line(&mut self) {
        if let Some(line) = self.open.take()
            && !line.text.trim().is_empty()
            && self.done.len() < MAX_PDF_LINES
        {
            self.done.push(line);
        }
    }
}

impl OutputDev for PdfLineCollector {
    fn begin_page(
        &mut self,
        page: u32,
        _: &MediaBox,
        _: Option<(f64, f64, f64, f64)>,
    ) -> Result<(), OutputError> {
        self.finish_line();
        self.page = page;
        Ok(())
    }

    fn end_page(&mut self) -> Result<(), OutputError> {
        self.finish_line();
        Ok(())
    }

    fn output_character(
        &mut self,
        place: &Transform,
        width: f64,
        _: f64,
        size: f64,
        text: &str,
    ) -> Result<(), OutputError> {
        // The side of a square as large as what the font's square becomes.
        let size = size * (place.m11 * place.m22 - place.m12 * place.m21).abs().sqrt();
        let (x, y) = (place.m31, place.m32);
        let moved = self.open.as_ref().is_some_and(|line| {
            let next = (y - line.y).abs() > size.max(line.size) * 0.5;
            // Back to the left on the same height is another column.
            next || (self.gap && x + size < self.end - size)
        });
        if moved {
            self.finish_line();
        }
        let line = self.open.get_or_insert_with(|| PdfLine {
            text: String::new(),
            size,
            y,
            page: self.page,
        });
        if self.gap && !line.text.is_empty() && x > self.end + size * 0.12 {
            line.text.push(' ');
        }
        line.size = line.size.max(size);
        line.text.push_str(text);
        self.end = x + width * size;
        self.gap = false;
        Ok(())
    }

    fn begin_word(&mut self) -> Result<(), OutputError> {
        self.gap = true;
        Ok(())
    }

    fn end_word(&mut self) -> Result<(), OutputError> {
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), OutputError> {
        Ok(())
    }
}
