//! Stacks of calls, each kept once: as addresses while recording, with names at its end.
//!
//! Names take time: the first one of a program may read its debug information. So nobody asks for them while records wait
//! to be read.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use crate::facts::Frame;

use super::super::names::Names;
use super::super::recorded::{KERNEL, StackId};

/// So many stacks and calls, together, are kept from one recording to the next. They take some 100 bytes each, with names
/// some more.
const MANY: usize = 400_000;

/// A call: where its name is to be looked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Call {
    /// In the kernel, at this address.
    Kernel(u64),
    /// In this function of the kernel, which told no address.
    Function {
        /// Its name.
        name: Rc<str>,
        /// From its start.
        offset: u64,
    },
    /// In a file that a program has mapped.
    File {
        /// Its path as the program sees it.
        path: Rc<Path>,
        /// From the file's start.
        offset: u64,
    },
    /// In memory of this process that belongs to no file.
    Memory {
        /// The process.
        pid: u32,
        /// The address.
        address: u64,
    },
}

/// Stacks and their calls.
#[derive(Default)]
pub struct Stacks {
    calls: Vec<Seen>,
    places: HashMap<Call, u32>,
    stacks: Vec<Rc<[u32]>>,
    numbers: HashMap<Rc<[u32]>, StackId>,
}

struct Seen {
    call: Call,
    /// The process that was seen with it first, through which a file can be found, and the address there.
    pid: u32,
    address: u64,
    /// Innermost first: several where functions were inlined.
    frames: Option<Vec<Frame>>,
}

impl Stacks {
    /// The number of a call; `pid` and `address` say where it was seen.
    pub fn call(&mut self, call: Call, pid: u32, address: u64) -> u32 {
        if let Some(&place) = self.places.get(&call) {
            return place;
        }
        let place = self.calls.len() as u32;
        self.places.insert(call.clone(), place);
        self.calls.push(Seen { call, pid, address, frames: None });
        place
    }

    /// The number of a stack of these calls, innermost first.
    pub fn stack(&mut self, calls: &[u32]) -> StackId {
        if let Some(&number) = self.numbers.get(calls) {
            return number;
        }
        let number = self.stacks.len() as StackId;
        let calls: Rc<[u32]> = calls.into();
        self.stacks.push(calls.clone());
        self.numbers.insert(calls, number);
        number
    }

    /// Whether so many are kept that it is time to begin anew.
    pub fn are_many(&self) -> bool {
        self.stacks.len() + self.calls.len() > MANY
    }

    /// Asks for the names of these stacks' calls that have none yet.
    pub fn name(&mut self, wanted: &[StackId], names: &mut Names) {
        let mut nameless: Vec<u32> = Vec::new();
        for &stack in wanted {
            let calls = self.stacks.get(stack as usize).map_or(&[][..], |calls| calls);
            nameless
                .extend(calls.iter().filter(|&&call| self.calls[call as usize].frames.is_none()));
        }
        nameless.sort_unstable();
        nameless.dedup();
        let mut of_kernel = Vec::new();
        for place in nameless {
            let seen = &mut self.calls[place as usize];
            match &seen.call {
                Call::Kernel(address) => of_kernel.push((place, *address)),
                Call::Function { name, offset } => {
                    let (function, module) = (Some(name.to_string()), Some(KERNEL.to_owned()));
                    seen.frames =
                        Some(vec![Frame { function, offset: *offset, module, ..Frame::default() }]);
                }
                Call::File { path, offset } => {
                    seen.frames = Some(names.user(seen.pid, path, *offset, seen.address))
                }
                Call::Memory { pid, address } => {
                    seen.frames = Some(names.user(*pid, Path::new(""), 0, *address))
                }
            }
        }
        let addresses: Vec<u64> = of_kernel.iter().map(|&(_, address)| address).collect();
        for ((place, _), frames) in of_kernel.iter().zip(names.kernel(&addresses)) {
            self.calls[*place as usize].frames = Some(frames);
        }
    }

    /// The calls of a stack, by their numbers.
    pub fn calls(&self, stack: StackId) -> &[u32] {
        self.stacks.get(stack as usize).map_or(&[], |calls| calls)
    }

    /// What a call is named; nothing before [`name`](Self::name).
    pub fn frames(&self, call: u32) -> &[Frame] {
        self.calls.get(call as usize).and_then(|seen| seen.frames.as_deref()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_calls_are_the_same_stack() {
        let mut stacks = Stacks::default();
        let path: Rc<Path> = Path::new("/usr/lib/libc.so.6").into();
        let outer = stacks.call(Call::File { path: path.clone(), offset: 16 }, 7, 0x7000_0010);
        let kernel = stacks.call(Call::Kernel(5), 7, 5);
        // Another process maps the file elsewhere.
        assert_eq!(stacks.call(Call::File { path, offset: 16 }, 8, 0x7f00_0010), outer);
        let first = stacks.stack(&[kernel, outer]);
        assert_eq!(stacks.stack(&[kernel, outer]), first);
        assert_ne!(stacks.stack(&[outer]), first);
        assert_eq!(stacks.calls(first), [kernel, outer]);
        assert!(stacks.frames(outer).is_empty());
    }
}
