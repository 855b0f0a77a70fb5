//! Which CPUs there are, and how near any two of them are, by what the kernel says in
//! `/sys/devices/system/cpu`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::world::allowed_cpus;

/// A CPU and where it is. Without the kernel's word every CPU is a core of one socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number of it.
    pub number: usize,
    socket: u32,
    core: u32,
    /// The CPUs that share its last-level cache, as the kernel writes them; any text that is the
    /// same for all of them.
    cluster: String,
}

/// How near two CPUs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Threads of one core.
    Siblings,
    /// Cores with one last-level cache, where a socket has several.
    Cluster,
    /// Cores of one socket.
    Socket,
    /// Cores of different sockets.
    Cross,
}

/// The CPUs that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// Ascending by number; at least one.
    pub list: Vec<Cpu>,
    /// Sockets.
    pub sockets: u32,
    /// Cores of the socket with most.
    pub cores_per_socket: u32,
    /// Threads of the core with most.
    pub threads_per_core: u32,
    /// Cores of one cluster; those of a socket where that is not a whole part of it.
    pub cores_per_cluster: u32,
}

impl Cpus {
    /// This machine's.
    pub fn here() -> Cpus {
        let mut numbers = allowed_cpus();
        if numbers.is_empty() {
            numbers.push(0);
        }
        Cpus::read(Path::new("/sys/devices/system/cpu"), &numbers)
    }

    fn read(root: &Path, numbers: &[usize]) -> Cpus {
        let list = numbers.iter().map(|&number| {
            let cpu = root.join(format!("cpu{number}"));
            let id = |name: &str| read(cpu.join("topology").join(name))?.parse().ok();
            Cpu {
                number,
                socket: id("physical_package_id").unwrap_or(0),
                core: id("core_id").unwrap_or(number as u32),
                cluster: last_level_sharers(&cpu),
            }
        });
        Cpus::of(list.collect())
    }

    fn of(list: Vec<Cpu>) -> Cpus {
        let distinct =
            |of: &dyn Fn(&Cpu) -> String| -> BTreeSet<String> { list.iter().map(of).collect() };
        let most = |count: &dyn Fn(&Cpu) -> usize| list.iter().map(count).max().unwrap_or(1) as u32;
        let sockets = distinct(&|cpu| cpu.socket.to_string()).len() as u32;
        let cores_of = |is_mine: &dyn Fn(&Cpu) -> bool| {
            let mine = list.iter().filter(|cpu| is_mine(cpu));
            mine.map(|cpu| (cpu.socket, cpu.core)).collect::<BTreeSet<_>>().len()
        };
        let cores_per_socket = most(&|cpu| cores_of(&|other| other.socket == cpu.socket));
        let threads_per_core = most(&|cpu| {
            list.iter().filter(|other| (other.socket, other.core) == (cpu.socket, cpu.core)).count()
        });
        let cluster = most(&|cpu| {
            cores_of(&|other| other.socket == cpu.socket && other.cluster == cpu.cluster)
        });
        let is_whole_part = cores_per_socket.is_multiple_of(cluster);
        let cores_per_cluster = if is_whole_part { cluster } else { cores_per_socket };
        Cpus { list, sockets, cores_per_socket, threads_per_core, cores_per_cluster }
    }

    /// Whether every socket has as many cores, and every core as many threads.
    pub fn is_even(&self) -> bool {
        let full = self.sockets * self.cores_per_socket * self.threads_per_core;
        self.list.len() as u32 == full
    }

    /// How near two CPUs are.
    pub fn distance(&self, a: &Cpu, b: &Cpu) -> Distance {
        if a.socket != b.socket {
            Distance::Cross
        } else if a.core == b.core {
            Distance::Siblings
        } else if self.cores_per_cluster < self.cores_per_socket && a.cluster == b.cluster {
            Distance::Cluster
        } else {
            Distance::Socket
        }
    }

    /// At most `most` pairs at this distance, spread over the machine.
    pub fn pairs(&self, distance: Distance, most: usize) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        for (index, a) in self.list.iter().enumerate() {
            for b in &self.list[index + 1..] {
                if self.distance(a, b) == distance {
                    all.push((a.number, b.number));
                }
            }
        }
        let taken = all.len().min(most);
        (0..taken).map(|index| all[index * all.len() / taken]).collect()
    }

    /// Two cores in each of two sockets, one CPU of each; `None` where there are no such.
    pub fn two_cores_in_two_sockets(&self) -> Option<[[usize; 2]; 2]> {
        let near: Vec<(&Cpu, &Cpu)> = self
            .list
            .iter()
            .enumerate()
            .flat_map(|(index, a)| self.list[index + 1..].iter().map(move |b| (a, b)))
            .filter(|(a, b)| a.socket == b.socket && a.core != b.core)
            .collect();
        let first = near.first()?;
        let second = near.iter().find(|pair| pair.0.socket != first.0.socket)?;
        Some([first, second].map(|pair| [pair.0.number, pair.1.number]))
    }

    /// Two CPUs that share no core, near each other; `None` on a machine with one core.
    pub fn two_cores(&self) -> Option<(usize, usize)> {
        [Distance::Cluster, Distance::Socket, Distance::Cross]
            .into_iter()
            .find_map(|distance| self.pairs(distance, 1).first().copied())
    }
}

fn read(path: PathBuf) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Who shares the cache with the highest level; empty where the kernel does not say.
fn last_level_sharers(cpu: &Path) -> String {
    let cache = |index: u32| {
        let dir = cpu.join(format!("cache/index{index}"));
        let level: u32 = read(dir.join("level"))?.parse().ok()?;
        Some((level, read(dir.join("shared_cpu_list"))?))
    };
    (0..8).filter_map(cache).max_by_key(|(level, _)| *level).map_or(String::new(), |(_, list)| list)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two clusters of two cores of two threads; siblings are numbered last.
    fn big() -> Cpus {
        let cpu = |number: usize| {
            let core = number % 8;
            let (socket, cluster) = (core / 4, core / 2);
            Cpu {
                number,
                socket: socket as u32,
                core: (core % 4) as u32,
                cluster: cluster.to_string(),
            }
        };
        Cpus::of((0..16).map(cpu).collect())
    }

    #[test]
    fn topologies_are_counted() {
        let cpus = big();
        let counts =
            [cpus.sockets, cpus.cores_per_socket, cpus.threads_per_core, cpus.cores_per_cluster];
        assert_eq!(counts, [2, 4, 2, 2]);
        assert!(cpus.is_even());
        let uneven = Cpus::of(cpus.list[..9].to_vec());
        assert!(!uneven.is_even());
        assert_eq!(uneven.threads_per_core, 2);
    }

    #[test]
    fn pairs_are_grouped_by_how_near_they_are() {
        let cpus = big();
        assert_eq!(cpus.pairs(Distance::Siblings, 100).len(), 8);
        assert_eq!(cpus.pairs(Distance::Siblings, 1), [(0, 8)]);
        assert_eq!(cpus.pairs(Distance::Cluster, 1), [(0, 1)]);
        assert_eq!(cpus.pairs(Distance::Socket, 1), [(0, 2)]);
        assert_eq!(cpus.pairs(Distance::Cross, 1), [(0, 4)]);
        let all = [Distance::Siblings, Distance::Cluster, Distance::Socket, Distance::Cross];
        let count: usize = all.iter().map(|&distance| cpus.pairs(distance, 1000).len()).sum();
        assert_eq!(count, 16 * 15 / 2);
        let few = cpus.pairs(Distance::Cross, 5);
        assert_eq!(few.len(), 5);
        assert!(few.iter().any(|pair| pair.0 > 4), "{few:?}");
    }

    #[test]
    fn two_cores_are_found_in_two_sockets() {
        let cpus = big();
        assert_eq!(cpus.two_cores_in_two_sockets(), Some([[0, 1], [4, 5]]));
        // Siblings are one core.
        let cpu = |number: usize| cpus.list[number].clone();
        let few = Cpus::of([0, 8, 4, 5].map(cpu).to_vec());
        assert_eq!(few.two_cores_in_two_sockets(), None);
        let one_socket = Cpus::of(cpus.list[..4].to_vec());
        assert_eq!(one_socket.two_cores_in_two_sockets(), None);
    }

    #[test]
    fn a_machine_that_says_nothing_is_cores_of_one_socket() {
        let cpus = Cpus::read(Path::new("/nowhere"), &[3, 5, 6]);
        assert_eq!((cpus.sockets, cpus.cores_per_socket, cpus.threads_per_core), (1, 3, 1));
        assert_eq!(cpus.cores_per_cluster, 3);
        assert_eq!(cpus.two_cores(), Some((3, 5)));
        assert_eq!(Cpus::read(Path::new("/nowhere"), &[7]).two_cores(), None);
    }

    #[test]
    fn this_machine_has_cpus() {
        let cpus = Cpus::here();
        assert!(!cpus.list.is_empty());
        assert!(
            cpus.sockets * cpus.cores_per_socket * cpus.threads_per_core >= cpus.list.len() as u32
        );
    }
}
