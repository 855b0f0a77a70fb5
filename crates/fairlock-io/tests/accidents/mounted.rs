//! Small file systems in files: made, mounted, and taken away.
//!
//! They need root and the file system's own `mkfs` (`e2fsprogs`, `xfsprogs`, `btrfs-progs`). Who has neither gets
//! the reason, and is to say that nothing was tested.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How one is made.
#[derive(Debug, Clone, Copy)]
pub struct FileSystem {
    pub name: &'static str,
    /// The command, without the file that the file system is made in.
    pub mkfs: &'static [&'static str],
    pub megabytes: u64,
}

impl FileSystem {
    fn make(&self, image: &Path) -> Result<(), String> {
        let file = File::create(image).map_err(|error| error.to_string())?;
        file.set_len(self.megabytes << 20).map_err(|error| error.to_string())?;
        run(Command::new(self.mkfs[0]).args(&self.mkfs[1..]).arg(image))
    }
}

/// A mounted file system, until this is dropped.
pub struct Mounted {
    image: PathBuf,
    place: PathBuf,
}

impl Mounted {
    /// Makes one in `directory`; where that cannot be done, says so and returns `None`.
    pub fn make(directory: &Path, kind: &FileSystem) -> Option<Mounted> {
        Mounted::try_make(directory, kind)
            .inspect_err(|error| {
                println!("skipped, as no {} can be mounted here: {error}", kind.name)
            })
            .ok()
    }

    fn try_make(directory: &Path, kind: &FileSystem) -> Result<Mounted, String> {
        let (image, place) = (directory.join("image"), directory.join("place"));
        fs::create_dir(&place).map_err(|error| error.to_string())?;
        kind.make(&image)?;
        mount(&image, &place)?;
        Ok(Mounted { image, place })
    }

    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Unmounts it and mounts it again, as the next start of the machine does.
    #[allow(dead_code, reason = "some tests have no need of it")]
    pub fn mount_again(&self) -> Result<(), String> {
        unmount(&self.place)?;
        mount(&self.image, &self.place)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.place) {
            eprintln!("{error}");
        }
    }
}

fn mount(image: &Path, place: &Path) -> Result<(), String> {
    run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(place))
}

/// Who looks at all processes may keep for a moment what one that has ended had open.
fn unmount(place: &Path) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match run(Command::new("umount").arg(place)) {
            Err(error) if error.contains("busy") && began.elapsed() < Duration::from_secs(120) => {
                thread::sleep(Duration::from_millis(5));
            }
            unmounted => return unmounted,
        }
    }
}

/// Runs a command that says nothing if it succeeds; why it did not, in English.
pub fn run(command: &mut Command) -> Result<(), String> {
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
