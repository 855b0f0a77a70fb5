//! From the figures of a file to the machine that is simulated: conversion to nanoseconds, and the
//! checks of figures against each other.

use toml::Table;

use super::schema::{KEYS, Kind, links, number, order, placement, time_ns};
use super::sheet::{Figure, ProfileError, Sheet};
use super::{
    Arbitration, Barrier, Costs, Device, HERE_FILE, Lines, Placement, Profile, Schedule, Service,
    Topology, Wake, Wakening,
};

/// More CPUs than any machine of one kernel has. The simulator keeps a record for each.
const MOST_CPUS: u64 = 4096;

impl Sheet {
    /// The machine.
    ///
    /// # Errors
    /// A figure that is missing, or that contradicts another.
    pub fn profile(&self) -> Result<Profile, ProfileError> {
        let topology = self.topology()?;
        let line = self.lines(&topology)?;
        Ok(Profile {
            name: self.name.clone(),
            title: self.title.clone(),
            cost: Costs {
                load_ns: self.time("cost.load")?,
                store_ns: self.time("cost.store")?,
                rmw_ns: self.time("cost.rmw")?,
                step_ns: self.time("cost.step")?,
                pause_ns: self.time("cost.pause")?,
                clock_ns: self.time("cost.clock")?,
                observe_ns: self.time("cost.observe")?,
                smt_slowdown: self.number("cost.smt_slowdown", "factor")?,
                smt_spin: self.smt_spin()?,
            },
            line,
            schedule: Schedule {
                placement: placement(self.amount("schedule.placement")?)
                    .unwrap_or(Placement::Spread),
                hz: self.number("schedule.tick", "hz")?,
                slice_ns: self.time("schedule.slice")?,
                switch_ns: self.time("schedule.switch")?,
                migration_ns: self.time("schedule.migration")?,
                wakeup_granularity_ns: self.time("schedule.wakeup_granularity")?,
            },
            wake: Wake {
                call_ns: self.time("wake.call")?,
                remote_ns: self.time("wake.remote")?,
                lines: self.count("wake.lines")?,
                nobody_ns: self.time("wake.nobody")?,
                sleep_ns: self.time("wake.sleep")?,
                idle: self.wakenings()?,
            },
            barrier: Barrier {
                call_ns: self.time("barrier.call")?,
                wait_ns: self.time("barrier.wait")?,
                each_ns: self.time("barrier.each")?,
                interrupt_ns: self.time("barrier.interrupt")?,
            },
            device: Device {
                servers: self.count("device.servers")?,
                queue: self.count("device.queue")?,
                read: self.service("device.read")?,
                write: self.service("device.write")?,
            },
            topology,
        })
    }

    /// A time or a list's time in nanoseconds; `None` for what is no single time.
    pub fn nanoseconds(&self, figure: &Figure) -> Option<f64> {
        let ghz = self.number("topology.frequency", "ghz").unwrap_or(f64::NAN);
        match figure.key.kind {
            Kind::Time | Kind::TimeOrNone | Kind::Times => time_ns(&figure.amount, ghz),
            _ => None,
        }
    }

    fn error(&self, reason: String) -> ProfileError {
        ProfileError { file: self.file.clone(), reason }
    }

    /// The amounts of a key: none, one, or those of a list.
    fn amounts(&self, name: &str) -> Vec<&Table> {
        let figures = self.figures.iter().filter(|figure| figure.key.name == name);
        figures.map(|figure| &figure.amount).collect()
    }

    fn given(&self, name: &str) -> bool {
        !self.amounts(name).is_empty()
    }

    fn amount(&self, name: &str) -> Result<&Table, ProfileError> {
        self.amounts(name).first().copied().ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> ProfileError {
        let key = KEYS.iter().find(|key| key.name == name);
        let (meaning, valid) =
            key.map_or(("", String::new()), |key| (key.meaning, key.kind.valid()));
        let again = if self.file == HERE_FILE { ", or run `fairlock calibrate` again" } else { "" };
        self.error(format!("`{name}` ({meaning}) is missing; give {valid}{again}"))
    }

    /// As it stands in the file.
    fn shown(&self, name: &str) -> String {
        let figures = self.figures.iter().filter(|figure| figure.key.name == name);
        figures.map(|figure| figure.shown()).collect::<Vec<_>>().join("; ")
    }

    fn number(&self, name: &str, unit: &str) -> Result<f64, ProfileError> {
        self.amount(name)?.get(unit).and_then(number).ok_or_else(|| self.missing(name))
    }

    fn count(&self, name: &str) -> Result<u32, ProfileError> {
        self.number(name, "count").map(|count| count as u32)
    }

    fn to_ns(&self, name: &str, amount: &Table) -> Result<f64, ProfileError> {
        let ghz = match self.number("topology.frequency", "ghz") {
            Ok(ghz) => ghz,
            Err(_) if amount.contains_key("cy") && !amount.contains_key("at_ghz") => {
                return Err(self.error(format!(
                    "`{name}` is in cycles ({}) but `topology.frequency` is missing; give \
                     {{ ghz = 2.8 }} there or at_ghz here",
                    self.shown(name)
                )));
            }
            Err(_) => 1.0,
        };
        time_ns(amount, ghz).ok_or_else(|| self.missing(name))
    }

    fn time(&self, name: &str) -> Result<f64, ProfileError> {
        self.to_ns(name, self.amount(name)?)
    }

    fn service(&self, name: &str) -> Result<Service, ProfileError> {
        Ok(Service {
            base_ns: self.number(name, "base_us")? * 1e3,
            kib_ns: self.number(name, "kib_ns")?,
            sigma: self.number(name, "sigma")?,
        })
    }

    fn topology(&self) -> Result<Topology, ProfileError> {
        let sockets = self.count("topology.sockets")?;
        let cores_per_socket = self.count("topology.cores_per_socket")?;
        let threads_per_core = self.count("topology.threads_per_core")?;
        let cpus = u64::from(sockets) * u64::from(cores_per_socket) * u64::from(threads_per_core);
        if cpus > MOST_CPUS {
            return Err(self.error(format!(
                "[topology] is {cpus} CPUs ({sockets} × {cores_per_socket} × {threads_per_core}); \
                 at most {MOST_CPUS} can be simulated"
            )));
        }
        let cores_per_cluster = match self.given("topology.cores_per_cluster") {
            true => self.count("topology.cores_per_cluster")?,
            false => cores_per_socket,
        };
        if !cores_per_socket.is_multiple_of(cores_per_cluster) {
            return Err(self.error(format!(
                "`topology.cores_per_cluster` is {cores_per_cluster}; give a number that divides \
                 the {cores_per_socket} cores of a socket, or leave it out"
            )));
        }
        Ok(Topology {
            sockets,
            cores_per_socket,
            threads_per_core,
            cores_per_cluster,
            hops: self.hops(sockets as usize)?,
        })
    }

    fn hops(&self, sockets: usize) -> Result<Vec<Vec<u32>>, ProfileError> {
        let Ok(amount) = self.amount("topology.hops") else {
            let row = |from| (0..sockets).map(|to| u32::from(from != to)).collect();
            return Ok((0..sockets).map(row).collect());
        };
        let hops = links(amount).ok_or_else(|| self.missing("topology.hops"))?;
        let wrong = |what: String| {
            self.error(format!("`topology.hops` {what}; give {}", Kind::Links.valid()))
        };
        if hops.len() != sockets || hops.iter().any(|row| row.len() != sockets) {
            let widths: Vec<String> = hops.iter().map(|row| row.len().to_string()).collect();
            return Err(wrong(format!(
                "has {} rows of {} for {sockets} sockets",
                hops.len(),
                widths.join(", ")
            )));
        }
        for (from, row) in hops.iter().enumerate() {
            for (to, &links) in row.iter().enumerate() {
                if from == to && links != 0 {
                    return Err(wrong(format!("is {links} from socket {from} to itself, not 0")));
                }
                if from != to && links == 0 {
                    return Err(wrong(format!("is 0 from socket {from} to socket {to}")));
                }
                if links as usize >= sockets.max(2) {
                    return Err(wrong(format!(
                        "is {links} from socket {from} to socket {to}, more than a way past every \
                         socket has"
                    )));
                }
                if links != hops[to][from] {
                    return Err(wrong(format!(
                        "is {links} from socket {from} to socket {to} but {} back",
                        hops[to][from]
                    )));
                }
            }
        }
        Ok(hops)
    }

    /// A transfer that exists only where `exists`; elsewhere `otherwise` stands in its place.
    fn transfer(
        &self,
        name: &str,
        exists: bool,
        because: &str,
        otherwise: f64,
    ) -> Result<f64, ProfileError> {
        match (exists, self.given(name)) {
            (true, _) => self.time(name),
            (false, false) => Ok(otherwise),
            (false, true) => Err(self.error(format!(
                "`{name}` is {}, but there is no such transfer: {because}; leave it out",
                self.shown(name)
            ))),
        }
    }

    fn lines(&self, topology: &Topology) -> Result<Lines, ProfileError> {
        let socket_ns = self.time("line.socket")?;
        let cluster_ns = self.transfer(
            "line.cluster",
            topology.cores_per_cluster < topology.cores_per_socket,
            "a cluster is a whole socket",
            socket_ns,
        )?;
        let smt_ns = self.transfer(
            "line.smt",
            topology.threads_per_core > 1,
            "`topology.threads_per_core` is 1",
            cluster_ns,
        )?;
        let cross = self.amounts("line.cross");
        let cross_ns: Vec<f64> = cross
            .iter()
            .map(|amount| self.to_ns("line.cross", amount))
            .collect::<Result<_, _>>()?;
        let farthest = topology.hops.iter().flatten().copied().max().unwrap_or(0) as usize;
        if cross_ns.len() != farthest {
            return Err(self.error(format!(
                "`line.cross` has {} entries ({}) but sockets are up to {farthest} links apart; \
                 give one for each number of links from 1 on",
                cross_ns.len(),
                if cross.is_empty() {
                    "it is missing".to_owned()
                } else {
                    self.shown("line.cross")
                }
            )));
        }

        let mut steps = vec![
            ("line.smt".to_owned(), smt_ns),
            ("line.cluster".to_owned(), cluster_ns),
            ("line.socket".to_owned(), socket_ns),
        ];
        steps.extend(
            cross_ns.iter().enumerate().map(|(index, &ns)| (format!("line.cross[{index}]"), ns)),
        );
        for pair in steps.windows(2) {
            let [(near, near_ns), (far, far_ns)] = pair else { continue };
            if near_ns > far_ns {
                return Err(self.error(format!(
                    "`{near}` is {near_ns:.1} ns and `{far}` is {far_ns:.1} ns; give transfers that \
                     take no longer the nearer they are"
                )));
            }
        }
        let arbitration = order(self.amount("line.arbitration")?);
        Ok(Lines {
            smt_ns,
            cluster_ns,
            socket_ns,
            cross_ns,
            memory_ns: self.time("line.memory")?,
            invalidate_ns: self.time("line.invalidate")?,
            share_ns: self.time("line.share")?,
            spread: self.number("line.spread", "part")?,
            keep: self.number("line.keep", "part")?,
            contended: self.contended(topology.sockets > 1)?,
            arbitration: arbitration.unwrap_or(Arbitration::Fifo),
        })
    }

    /// Makes a difference only where siblings do.
    fn smt_spin(&self) -> Result<f64, ProfileError> {
        let busy = self.number("cost.smt_slowdown", "factor")?;
        match (busy == 1.0, self.given("cost.smt_spin")) {
            (true, false) => Ok(1.0),
            (true, true) => Err(self.error(format!(
                "`cost.smt_spin` is {}, but `cost.smt_slowdown` is 1; leave it out",
                self.shown("cost.smt_spin")
            ))),
            (false, _) => {
                let spin = self.number("cost.smt_spin", "factor")?;
                if spin > busy {
                    return Err(self.error(format!(
                        "`cost.smt_spin` is {spin} and `cost.smt_slowdown` {busy}; a sibling that \
                         spins costs no more than one that is busy; give a factor from 1 to {busy}"
                    )));
                }
                Ok(spin)
            }
        }
    }

    /// Makes a difference only between sockets.
    fn contended(&self, has_sockets: bool) -> Result<f64, ProfileError> {
        match (has_sockets, self.given("line.contended")) {
            (true, _) => self.number("line.contended", "factor"),
            (false, false) => Ok(1.0),
            (false, true) => Err(self.error(format!(
                "`line.contended` is {}, but `topology.sockets` is 1; leave it out",
                self.shown("line.contended")
            ))),
        }
    }

    fn wakenings(&self) -> Result<Vec<Wakening>, ProfileError> {
        let amounts = self.amounts("wake.idle");
        if amounts.is_empty() {
            return Err(self.missing("wake.idle"));
        }
        let us = |amount: &Table, unit: &str| amount.get(unit).and_then(number).unwrap_or(0.0);
        let idle: Vec<Wakening> = amounts
            .iter()
            .map(|amount| Wakening {
                idle_ns: us(amount, "idle_us") * 1e3,
                p50_ns: us(amount, "p50_us") * 1e3,
                p99_ns: us(amount, "p99_us") * 1e3,
            })
            .collect();
        let ascends = idle.windows(2).all(|pair| pair[0].idle_ns < pair[1].idle_ns);
        if idle[0].idle_ns != 0.0 || !ascends {
            let times: Vec<String> =
                idle.iter().map(|entry| format!("{}", entry.idle_ns / 1e3)).collect();
            return Err(self.error(format!(
                "`wake.idle` has idle_us = {}; begin with 0 and ascend",
                times.join(", ")
            )));
        }
        Ok(idle)
    }
}
