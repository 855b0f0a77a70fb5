//! Which file a descriptor of a process leads to, and what a call does with it.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;

use super::super::recorded::{FileCall, FileId, FileSeen};

/// Files, each kept once, and descriptors that lead to them.
#[derive(Default)]
pub struct Files {
    /// All that were seen.
    pub files: Vec<FileSeen>,
    numbers: HashMap<(u64, u64, bool), FileId>,
    descriptors: HashMap<(u32, u32), Option<Descriptor>>,
}

/// A descriptor of a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// The file, as a place in [`Files::files`].
    pub file: FileId,
    /// Writes go to the file's end, wherever the descriptor's position is.
    pub appends: bool,
}

/// A call that reads or writes a file, or sets a descriptor's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileCallBegin {
    /// None: it sets the position.
    pub call: Option<FileCall>,
    /// Whose descriptor.
    pub pid: u32,
    /// Its number there.
    pub descriptor: u32,
    /// The file, as a place in `Files`.
    pub file: u32,
    /// As the call says; none: the descriptor's position.
    pub offset: Option<u64>,
    /// As the call says; 0: in a list.
    pub bytes: u64,
    /// It goes to the end of the file.
    pub appends: bool,
}

impl Files {
    /// What this descriptor leads to; none: no regular file, or it was closed before it could be looked at.
    pub fn descriptor(&mut self, pid: u32, number: u32) -> Option<Descriptor> {
        if let Some(known) = self.descriptors.get(&(pid, number)) {
            return *known;
        }
        let found = self.look(pid, number);
        self.descriptors.insert((pid, number), found);
        found
    }

    /// Forgets descriptors, which may lead elsewhere by now.
    pub fn forget_descriptors(&mut self) {
        self.descriptors.clear();
    }

    fn look(&mut self, pid: u32, number: u32) -> Option<Descriptor> {
        let link = format!("/proc/{pid}/fd/{number}");
        let metadata = fs::metadata(&link).ok().filter(fs::Metadata::is_file)?;
        let flags = flags(&fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?)?;
        let is_direct = flags & libc::O_DIRECT != 0;
        let next = self.files.len() as FileId;
        let file =
            *self.numbers.entry((metadata.dev(), metadata.ino(), is_direct)).or_insert_with(|| {
                let path = fs::read_link(&link).unwrap_or_default();
                self.files.push(FileSeen {
                    path: path.to_string_lossy().into_owned(),
                    device: metadata.dev(),
                    inode: metadata.ino(),
                    file_system: file_system(&link).map(name).unwrap_or_default(),
                    is_direct,
                });
                next
            });
        Some(Descriptor { file, appends: flags & libc::O_APPEND != 0 })
    }
}

/// The flags of a descriptor, which `fdinfo` shows as an octal number.
fn flags(text: &str) -> Option<i32> {
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    i32::from_str_radix(flags.trim(), 8).ok()
}

/// The number of the file system that this path leads to.
fn file_system(path: &str) -> Option<u32> {
    let path = CString::new(path).ok()?;
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the path ends with a 0, and the kernel writes one statfs.
    if unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the kernel filled it in.
    Some(unsafe { found.assume_init() }.f_type as u32)
}

/// What people call a file system.
fn name(number: u32) -> String {
    let name = match number {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0xf2f5_2010 => "f2fs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlay",
        0x6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x2fc1_2fc1 => "zfs",
        0x6573_5546 => "fuse",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        0x6367_7270 => "cgroup2",
        0x9584_58f6 => "hugetlbfs",
        _ => return format!("{number:#x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_regular_file_is_found_by_its_descriptor_and_others_are_not() {
        let mut files = Files::default();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"text").unwrap();
        let number = file.as_file().as_raw_fd() as u32;
        let found = files.descriptor(std::process::id(), number).unwrap();
        assert!(!found.appends);
        let seen = &files.files[found.file as usize];
        assert_eq!(seen.path, file.path().canonicalize().unwrap().to_string_lossy());
        assert_eq!(seen.inode, file.as_file().metadata().unwrap().ino());
        assert!(!seen.is_direct && !seen.file_system.is_empty());
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(files.descriptor(std::process::id(), reader.as_raw_fd() as u32), None);
        assert_eq!(files.descriptor(u32::MAX - 1, 0), None);
    }

    #[test]
    fn flags_are_octal() {
        assert_eq!(flags("pos:\t0\nflags:\t02100001\nmnt_id:\t31\n"), Some(0o2_100_001));
        assert_eq!(flags("pos:\t0\n"), None);
    }
}
