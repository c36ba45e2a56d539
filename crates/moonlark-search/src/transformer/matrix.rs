//! Products of matrices, on slices whose bounds are checked.

/// Numbers in rows, of a slice that has them all.
#[derive(Clone, Copy)]
pub(super) struct MatrixView<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    /// From one row to the next, and from one column to the next.
    strides: [usize; 2],
}

impl<'a> MatrixView<'a> {
    /// Rows one after the other.
    pub(super) fn new(numbers: &'a [f32], rows: usize, columns: usize) -> MatrixView<'a> {
        MatrixView::part(numbers, 0, rows, columns, columns)
    }

    /// Some columns of longer rows, from the one numbered `first` on.
    pub(super) fn part(
        numbers: &'a [f32],
        first: usize,
        rows: usize,
        columns: usize,
        row_length: usize,
    ) -> MatrixView<'a> {
        let numbers = numbers.get(first..).unwrap_or_default();
        MatrixView { numbers, rows, columns, strides: [row_length, 1] }
    }

    pub(super) fn transposed(self) -> MatrixView<'a> {
        let [row, column] = self.strides;
        MatrixView { rows: self.columns, columns: self.rows, strides: [column, row], ..self }
    }

    /// Whether all of it is in the slice.
    fn is_whole(&self) -> bool {
        last_index(self.rows, self.columns, self.strides).is_some_and(|it| it < self.numbers.len())
    }
}

/// `a` times `b`, put into the columns of `out` from `first` on, whose rows are
/// `row_length` apart. Nothing happens where the shapes do not fit.
pub(super) fn multiply_into(
    a: MatrixView<'_>,
    b: MatrixView<'_>,
    out: &mut [f32],
    first: usize,
    row_length: usize,
) {
    let out = out.get_mut(first..).unwrap_or_default();
    let within = last_index(a.rows, b.columns, [row_length, 1]).is_some_and(|it| it < out.len());
    let fits = a.columns == b.rows && b.columns <= row_length;
    debug_assert!(within && fits && a.is_whole() && b.is_whole());
    if !(within && fits && a.is_whole() && b.is_whole()) {
        return;
    }
    // Strides fit, since the products of sizes and strides are within slices.
    let [a_row, a_column] = a.strides.map(|it| it as isize);
    let [b_row, b_column] = b.strides.map(|it| it as isize);
    // SAFETY: the last number of each matrix lies within its slice, as was checked above,
    // and so do all others, which come before it. `out` is borrowed mutably, so it is none
    // of the others, and no two places of it are the same: its rows are at least as far
    // apart as they are long.
    unsafe {
        matrixmultiply::sgemm(
            a.rows,
            a.columns,
            b.columns,
            1.0,
            a.numbers.as_ptr(),
            a_row,
            a_column,
            b.numbers.as_ptr(),
            b_row,
            b_column,
            0.0,
            out.as_mut_ptr(),
            row_length as isize,
            1,
        );
    }
}

/// The index of the last number; nothing where there is no number at all.
fn last_index(rows: usize, columns: usize, strides: [usize; 2]) -> Option<usize> {
    let (row, column) = (rows.checked_sub(1)?, columns.checked_sub(1)?);
    row.checked_mul(strides[0])?.checked_add(column.checked_mul(strides[1])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_definition() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let b = [1.0, 0.0, 2.0, 1.0, 1.0, 1.0];
        let mut out = [9.0; 8];
        // Two rows of three, times the transpose of two rows of three.
        let (left, right) = (MatrixView::new(&a, 2, 3), MatrixView::new(&b, 2, 3).transposed());
        multiply_into(left, right, &mut out, 1, 4);
        assert_eq!(out, [9.0, 7.0, 6.0, 9.0, 9.0, 16.0, 15.0, 9.0]);
        let some = MatrixView::part(&a, 1, 2, 2, 3);
        let mut out = [0.0; 4];
        multiply_into(some, MatrixView::new(&b, 2, 2), &mut out, 0, 2);
        assert_eq!(out, [8.0, 3.0, 17.0, 6.0]);
    }
}
