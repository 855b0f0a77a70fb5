//! What shells and `man` know of the command, made of its options by clap's own generators.

use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

/// As it is called.
const NAME: &str = "fairlock";

/// A script by which a shell completes the command.
pub fn completions(mut command: Command, shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut command, NAME, &mut script);
    String::from_utf8(script).expect("options and what is said of them are UTF-8")
}

/// The man pages of the command and of each of its subcommands, with the names of their files: `fairlock-bench-mix.1`.
pub fn pages(command: Command) -> Vec<(String, String)> {
    // `fairlock help bench` says what `fairlock bench --help` says.
    let mut command = command.disable_help_subcommand(true);
    // Names subcommands by all that stands before them.
    command.build();
    let mut pages = Vec::new();
    add_pages(command, &mut pages);
    pages
}

fn add_pages(command: Command, pages: &mut Vec<(String, String)>) {
    let below: Vec<Command> =
        command.get_subcommands().filter(|it| !it.is_hide_set()).cloned().collect();
    // At the foot of each page. An empty date would be left out of the list of its words, and the next in its place.
    let page = Man::new(command).date(" ").source(concat!("Fairlock ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text).expect("memory can be written");
    let text = String::from_utf8(text).expect("options and what is said of them are UTF-8");
    pages.push((page.get_filename(), with_examples_as_they_are(&text)));
    below.into_iter().for_each(|command| add_pages(command, pages));
}

/// The page with its indented lines, which are commands, neither filled nor broken.
fn with_examples_as_they_are(page: &str) -> String {
    let mut text = String::new();
    let mut is_example = false;
    for line in page.lines() {
        if line.starts_with("  ") != is_example {
            is_example = !is_example;
            text += if is_example { ".nf\n" } else { ".fi\n" };
        }
        text += line;
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Subcommand};
    use fairlock_study::harness::bench::Bench;

    #[test]
    fn every_subcommand_that_is_shown_has_a_page() {
        let hidden = Command::new("worker").hide(true);
        let bench = Bench::augment_subcommands(Command::new("bench").about("Compares locks"));
        let command = Command::new(NAME).subcommands([bench, hidden]);
        let pages = pages(command);
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..2], ["fairlock.1", "fairlock-bench.1"]);
        assert!(names.contains(&"fairlock-bench-mix.1") && !names.contains(&"fairlock-worker.1"));
        let mix = &pages.iter().find(|(name, _)| name == "fairlock-bench-mix.1").unwrap().1;
        assert!(mix.contains("fairlock bench mix") && mix.contains("section"), "{mix}");
        assert!(mix.contains(".nf\n  fairlock bench mix"), "{mix}");
        assert!(mix.contains("\n.TH fairlock-bench-mix 1 \" \" \"Fairlock "), "{mix}");
    }

    #[test]
    fn every_shell_gets_a_script_that_knows_the_options() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let command = Command::new(NAME).arg(Arg::new("quick").long("quick"));
            let script = completions(command, shell);
            assert!(script.contains("fairlock") && script.contains("quick"), "{shell}: {script}");
        }
    }
}
