//! Our figures beside published ones: the cells of a study's source tables.

use fairlock_report::row::Row;
use fairlock_report::units::{format_kilo, format_number};

use crate::study::claim::{self, Evidence};
use crate::study::{Column, Study, Table, TableRow};

/// A figure of ours in words.
pub(super) struct Figure {
    pub(super) low: String,
    pub(super) median: String,
    pub(super) high: String,
}

/// The figure that belongs into this place, if it was measured.
pub(super) fn figure(
    table: &Table,
    column: &Column,
    row: &TableRow,
    rows: &[Row],
) -> Option<Figure> {
    let is_here = table.here.iter().any(|it| std::ptr::eq(it, column));
    if is_here && !row.here {
        return None;
    }
    let evidence = Evidence { rows, ..Evidence::default() };
    let (numerator, denominator) = Study::selectors(column, row);
    let figure =
        claim::measure(&evidence, &numerator, denominator.as_ref(), &row.params).ok()?.estimate;
    let published = column.over_source.as_ref().and_then(|over| table.source_ratio(row, over));
    let words = |value: f64| match published {
        Some(published) => format_number(value / published),
        None if table.in_thousands && denominator.is_none() => format_kilo(value),
        None => match &numerator.metric {
            Some(metric) if denominator.is_none() => metric.format(value),
            _ => format_number(value),
        },
    };
    Some(Figure { low: words(figure.low), median: words(figure.median), high: words(figure.high) })
}
