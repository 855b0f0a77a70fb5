//! Machines for a terminal: the figures of a profile, and what a calibration measured.

use fairlock_report::screen::{Column, Table, wrapped, wrapped_lines};
use fairlock_report::units::format_ns;
use fairlock_sim::profile::{Origin, Sheet};

use fairlock_lab::calibrate::Calibration;

/// Every figure of a machine with its source, in lines of this width.
pub fn figures(sheet: &Sheet, width: usize) -> String {
    let [figure, value, source] = ["figure", "value", "source"].map(Column::text);
    let mut table = Table::new(4, [figure, value, Column::number("time"), source]);
    for figure in &sheet.figures {
        let mut source = match &figure.origin {
            Origin::From(key) => format!("[{key}]"),
            Origin::Assumed(why) => format!("assumed: {why}"),
        };
        if !figure.note.is_empty() {
            source += &format!("; {}", figure.note);
        }
        let time = sheet.nanoseconds(figure).map(format_ns).unwrap_or_default();
        // A matrix reads better in rows.
        let value = figure.shown().replace("], [", "],\n[");
        table.row([figure.key.name.to_owned(), value, time, source]);
    }
    let mut text =
        format!("{}\n", wrapped(&format!("{}: {}", sheet.name, sheet.title), "  ", width));
    if !sheet.about.is_empty() {
        text += &format!("{}\n", wrapped_lines(sheet.about.trim(), width));
    }
    text += &format!("\n{}\n\n", table.fitted(width));
    for (key, citation) in &sheet.sources {
        text += &format!("{}\n", wrapped(&format!("[{key}] {citation}"), "  ", width));
    }
    text
}

/// What a calibration measured, with the spread of its samples, in lines of this width.
pub fn calibration(found: &Calibration, width: usize) -> String {
    let times = ["figure", "p10", "p50", "p90"].map(Column::number);
    let [measured, note] = ["measured", "note"].map(Column::text);
    let columns = [measured].into_iter().chain(times).chain([note]);
    let mut table = Table::new(1, columns);
    for row in &found.measured {
        let times = [row.value, row.p10, row.p50, row.p90].map(format_ns);
        table.row([row.what.clone()].into_iter().chain(times).chain([row.note.clone()]));
    }
    let assumed: Vec<&str> = found
        .sheet
        .figures
        .iter()
        .filter(|figure| matches!(figure.origin, Origin::Assumed(_)))
        .map(|figure| figure.key.name)
        .collect();
    format!(
        "{}\n\n{}\n\n{}\n",
        wrapped(&found.sheet.title, "  ", width),
        table.fitted(width),
        wrapped(&format!("assumed: {}", assumed.join(", ")), "  ", width)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_shows_its_figures_with_sources_in_the_width_that_there_is() {
        for name in fairlock_sim::profile::names() {
            let sheet = Sheet::find(name).unwrap();
            for width in [80, 120] {
                let text = figures(&sheet, width);
                for figure in &sheet.figures {
                    assert!(text.contains(figure.key.name), "{name}: {}", figure.key.name);
                }
                for line in text.lines() {
                    // Nobody can break an address.
                    let fits = line.chars().count() <= width || !line.trim().contains(' ');
                    assert!(fits, "{name}: {line}");
                }
            }
        }
    }

    #[test]
    fn published_cycles_show_as_time_and_with_their_source() {
        let text = figures(&Sheet::find("ivybridge-ex-8s").unwrap(), 120);
        let cross = text.lines().find(|line| line.starts_with("line.cross")).unwrap();
        assert!(cross.contains("cy = 341, at_ghz = 2.13"), "{cross}");
        assert!(cross.contains("160ns") && cross.contains("[mctop]; Westmere-EX"), "{cross}");
        assert!(text.contains("\n[mctop] MCTOP machine descriptions"), "{text}");
    }
}
