//! What the drop-in takes where nobody waits, against glibc's own locks: whole processes, interleaved.
//!
//! ```sh
//! cargo run --release -p fairlock-trace --example drop_in_overhead -- 15
//! ```
//! The argument is the number of rounds. Needs a C compiler.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use fairlock_report::row::Estimate;
use fairlock_report::statistics::estimate;
use fairlock_trace::comparison::order;
use fairlock_trace::counts::Counts;
use fairlock_trace::{LOCKS, library};

/// A lock by name, none for the program as it is; and whether it is counted.
type Side = (Option<&'static str>, bool);

/// ns for a read and for a write, each with its unlock.
type Times = [f64; 2];

fn compile(into: &Path) -> Result<(), Box<dyn Error>> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../fairlock-pthread/programs/pair.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status =
        Command::new(compiler).args(["-O2", "-pthread", source, "-o"]).arg(into).status()?;
    if status.success() { Ok(()) } else { Err(format!("the C compiler: {status}").into()) }
}

fn run(program: &Path, library: &Path, (lock, is_counted): Side) -> Result<Times, Box<dyn Error>> {
    let mut command = Command::new(program);
    let counts = Counts::create()?;
    if let Some(lock) = lock {
        command.env("LD_PRELOAD", library).env("FAIRLOCK_LOCK", lock);
    }
    if is_counted {
        command.env("FAIRLOCK_COUNTS", counts.path());
    }
    let output = String::from_utf8(command.output()?.stdout)?;
    let times: Vec<f64> = output.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    Ok(times.try_into().map_err(|_| "the program prints two times")?)
}

fn shown(Estimate { median, low, high }: Estimate) -> String {
    format!("{median:.2} [{low:.2}, {high:.2}]")
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(15), |rounds| rounds.parse::<u32>())?;
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("pair");
    compile(&program)?;
    let library = library::find()?;
    let mut sides: Vec<Side> = vec![(None, false)];
    sides.extend(LOCKS.iter().flat_map(|(name, _)| [(Some(*name), false), (Some(*name), true)]));
    let mut times: Vec<Vec<Times>> = vec![Vec::new(); sides.len()];
    for round in 0..rounds {
        for side in order(sides.len(), round) {
            times[side].push(run(&program, &library, sides[side])?);
        }
    }
    println!("{rounds} rounds: medians, and over the same round without the drop-in\n");
    println!("{:24} {:>9} {:>20} {:>9} {:>20}", "", "read, ns", "over", "write, ns", "over");
    for (side, (lock, is_counted)) in sides.iter().enumerate() {
        let name =
            format!("{}{}", lock.unwrap_or("none"), if *is_counted { "+counts" } else { "" });
        let [read, write] = [0, 1].map(|role| {
            let mine: Vec<f64> = times[side].iter().map(|times| times[role]).collect();
            let ratios =
                times[side].iter().zip(&times[0]).map(|(mine, none)| mine[role] / none[role]);
            (estimate(&mine).median, shown(estimate(&ratios.collect::<Vec<_>>())))
        });
        println!("{name:24} {:9.2} {:>20} {:9.2} {:>20}", read.0, read.1, write.0, write.1);
    }
    Ok(())
}
