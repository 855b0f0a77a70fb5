//! Standard output and standard error of a command. Rust's own macros end the program with a panic when a pipe is
//! closed or a device full; a command must not.
//!
//! * Nobody reads on (`fairlock list | head -1`): that is no failure. The rest is not printed, and the command goes
//!   on with what else it is to do, files for example.
//! * It cannot be written for another reason (a full disk): an error, as for any file.
//! * What is said on standard error is lost where nobody can hear it.

use std::io::{self, IsTerminal, Write};

use super::{columns, wrapped, wrapped_lines};

/// Prints to standard output, and flushes it.
///
/// # Errors
/// The system's; not that nobody reads it.
pub fn print(text: &str) -> io::Result<()> {
    unless_closed(write(&mut io::stdout().lock(), text))
}

fn write(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// Nobody wants to read on: that is no failure.
fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Says something on standard error, in lines that fit there.
pub fn say(text: &str) {
    let text = wrapped_lines(text, columns(&io::stderr()));
    // Nobody is left to tell.
    let _ = write(&mut io::stderr().lock(), &format!("{text}\n"));
}

/// Says an error or a warning on standard error: broken at spaces on a terminal, and one line elsewhere, where
/// programs look for it.
pub fn complain(text: &str) {
    let text = text.trim_end();
    let text = match io::stderr().is_terminal() {
        true => wrapped(text, "  ", columns(&io::stderr())),
        false => text.to_owned(),
    };
    let _ = write(&mut io::stderr().lock(), &format!("{text}\n"));
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_reader_that_left_is_no_failure_and_a_full_device_is_one() {
        let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
        drop(far);
        assert!(unless_closed(write(&mut near, "text")).is_ok());
        let mut full = File::options().write(true).open("/dev/full").expect("Linux has one");
        let error = unless_closed(write(&mut full, "text")).expect_err("it is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
