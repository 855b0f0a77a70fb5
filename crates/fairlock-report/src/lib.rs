//! Results, and pages of them: what `fairlock study`, `fairlock bench` and `fairlock run` record and write for people
//! to read.
//!
//! * [`quantity`]: figures with intervals and units, in the same words everywhere.
//! * [`table`]: tables that sort by a click or a key.
//! * [`chart`]: charts as plain values; the page draws them with Observable Plot.
//! * [`page`]: the shell of every page: header, contents, sections, light and dark.
//! * [`screen`]: what fits a terminal: its width, paragraphs and tables.
//! * [`row`], [`timeline`]: what a benchmark found; [`recording`]: the file that keeps it; [`params`]: what it ran with.
//! * [`machine`], [`busy`]: where it ran, and what else ran there.
//! * [`statistics`], [`random`]: medians, and intervals by resampling.
//! * [`program`]: a program as a replay runs it: its locks, and what its threads do with them.
//! * [`units`]: quantities as people type them and as tables print them.
//! * [`former_names`]: what earlier versions called some locks; [`printable`]: text that a terminal may be sent.
//!
//! A page is one HTML file that loads nothing, so that it can be sent to somebody. Without scripts its charts are
//! tables of the same values.
//!
//! This crate runs no lock and no workload: whoever has results composes a page from these parts.
//!
//! ```
//! use fairlock_report::chart::{Bar, Bars, Chart, Group, Looks};
//! use fairlock_report::page::{Page, Section};
//! use fairlock_report::quantity::{Figure, Unit};
//!
//! let mut looks = Looks::default();
//! let bar = |name: &str, rate| Bar { name: name.to_owned(), figure: Figure::exactly(rate), note: String::new() };
//! let bars = vec![bar("std", 3.5e6), bar("rwlock", 3.1e6)];
//! let groups = vec![Group { name: "8 threads".to_owned(), bars }];
//! let chart = Chart::new("Operations", Bars::new("operations", Unit::PerSecond, groups, &mut looks));
//! let mut page = Page::new("Results");
//! page.sections.push(Section::new("rates", "Rates", chart.html()));
//! assert!(page.html().starts_with("<!DOCTYPE html>"));
//! ```

pub mod busy;
pub mod chart;
pub mod former_names;
pub mod machine;
pub mod page;
pub mod params;
pub mod printable;
pub mod program;
pub mod quantity;
pub mod random;
pub mod recording;
pub mod row;
pub mod screen;
pub mod statistics;
pub mod table;
pub mod timeline;
pub mod units;

/// Runs the example of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
