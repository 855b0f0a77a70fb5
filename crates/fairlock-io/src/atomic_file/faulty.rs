//! A file in memory that does what a test tells it to: short calls, interruptions, errors.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Mutex;

use super::raw_file::{RawFile, SLICES_PER_CALL};

/// What the next call does instead of all that it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// None: all of it.
    Whole,
    /// So many bytes only.
    Short(usize),
    /// Nothing but this error.
    Fails(i32),
}

/// A call that came: its name, its offset or length, and how many bytes it asked for.
pub(crate) type Call = (&'static str, u64, usize);

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    script: VecDeque<Fault>,
    calls: Vec<Call>,
}

#[derive(Default)]
pub(crate) struct FaultyFile(Mutex<State>);

impl FaultyFile {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        FaultyFile(Mutex::new(State { bytes: bytes.to_vec(), ..State::default() }))
    }

    /// What the next calls do; those after them do what they are asked to.
    pub(crate) fn expect(&self, script: &[Fault]) {
        let mut state = self.0.lock().unwrap();
        assert!(state.script.is_empty(), "not all came: {:?}", state.script);
        state.script.extend(script);
        state.calls.clear();
    }

    /// Since the last script.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let state = self.0.lock().unwrap();
        assert!(state.script.is_empty(), "not all came: {:?}", state.script);
        state.calls.clone()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().bytes.clone()
    }

    /// Notes a call; how much of it to do.
    fn called(&self, call: Call) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        state.calls.push(call);
        match state.script.pop_front().unwrap_or(Fault::Whole) {
            Fault::Whole => Ok(usize::MAX),
            Fault::Short(most) => Ok(most),
            Fault::Fails(number) => Err(io::Error::from_raw_os_error(number)),
        }
    }

    fn load(&self, buffer: &mut [u8], offset: u64) -> usize {
        let state = self.0.lock().unwrap();
        let there = state.bytes.get(offset as usize..).unwrap_or_default();
        let size = buffer.len().min(there.len());
        buffer[..size].copy_from_slice(&there[..size]);
        size
    }

    fn store(&self, bytes: &[u8], offset: u64) -> usize {
        let mut state = self.0.lock().unwrap();
        let (begin, end) = (offset as usize, offset as usize + bytes.len());
        if state.bytes.len() < end {
            state.bytes.resize(end, 0);
        }
        state.bytes[begin..end].copy_from_slice(bytes);
        bytes.len()
    }
}

impl RawFile for FaultyFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.called(("read", offset, buffer.len()))?.min(buffer.len());
        Ok(self.load(&mut buffer[..most], offset))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let most = self.called(("write", offset, bytes.len()))?.min(bytes.len());
        Ok(if most == 0 { 0 } else { self.store(&bytes[..most], offset) })
    }

    fn read_slices(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        assert!(buffers.len() <= SLICES_PER_CALL, "EINVAL");
        let size = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut left = self.called(("read slices", offset, size))?;
        let mut done = 0;
        for buffer in buffers {
            let most = left.min(buffer.len());
            let read = self.load(&mut buffer[..most], offset + done as u64);
            (done, left) = (done + read, left - read);
        }
        Ok(done)
    }

    fn write_slices(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        assert!(slices.len() <= SLICES_PER_CALL, "EINVAL");
        let bytes = slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>();
        let most = self.called(("write slices", offset, bytes.len()))?.min(bytes.len());
        Ok(if most == 0 { 0 } else { self.store(&bytes[..most], offset) })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.called(("set_len", length, 0))?;
        self.0.lock().unwrap().bytes.resize(length as usize, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().bytes.len() as u64)
    }
}
