//! Pages of results: what `fairlock study`, `fairlock bench` and `fairlock run` write for people to read.
//!
//! * [`quantity`]: figures with intervals and units, in the same words everywhere.
//! * [`table`]: tables that sort by a click or a key.
//! * [`chart`]: charts as plain values; the page draws them with Observable Plot.
//! * [`page`]: the shell of every page: header, contents, sections, light and dark.
//!
//! A page is one HTML file that loads nothing, so that it can be sent to somebody. Without scripts its charts are
//! tables of the same values.
//!
//! This crate knows nothing of locks, rows or recordings: whoever has results composes a page from these parts.
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

pub mod chart;
pub mod page;
pub mod quantity;
pub mod table;
