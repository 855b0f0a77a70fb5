//! Stand-in.

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Roles {
    Dedicated { readers: u32, writers: u32 },
    Mixed { threads: u32, read_percent: f64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    Pauses(u32),
}

#[derive(Debug, Clone, PartialEq)]
pub struct MixParams {
    pub roles: Roles,
    pub read_section: Length,
    pub write_section: Length,
    pub read_think: Length,
    pub write_think: Length,
    pub time_reads_every: u32,
}

impl Default for MixParams {
    fn default() -> MixParams {
        let length = Length::Pauses(10);
        MixParams {
            roles: Roles::Dedicated {
                readers: 1,
                writers: 1,
            },
            read_section: length,
            write_section: length,
            read_think: length,
            write_think: length,
            time_reads_every: 1,
        }
    }
}
