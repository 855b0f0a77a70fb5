//! A share of a sweep's tasks: `3/40`.

use std::fmt;
use std::str::FromStr;

/// One of several shares that together are all tasks, each in one of them.
///
/// ```
/// use fairlock_study::sweep::share::Share;
/// let share: Share = "2/3".parse().unwrap();
/// let taken: Vec<usize> = (0..6).filter(|&place| share.has(place, "")).collect();
/// assert_eq!(taken, [1, 4]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Which, from 1 up.
    number: u32,
    /// Of how many.
    of: u32,
    by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Every so many-th task of the plan: all shares have as many.
    Count,
    /// By the tasks' names: a task stays in its share when the plan gets other tasks.
    Hash,
}

/// More shares than tasks are a slip of the finger.
const MOST: u32 = 100_000;

impl Share {
    /// Whether it has the task at this place of the plan, called so.
    pub fn has(self, place: usize, name: &str) -> bool {
        let which = match self.by {
            By::Count => place as u64,
            // Names are hashes.
            By::Hash => name.get(..15).and_then(|it| u64::from_str_radix(it, 16).ok()).unwrap_or(0),
        };
        which % u64::from(self.of) == u64::from(self.number - 1)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.by == By::Hash { "hash:" } else { "" };
        write!(f, "{by}{}/{}", self.number, self.of)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let wrong = || {
            format!(
                "\"{text}\" is no share; give 3/40 or count:3/40 for every 40th task from the third on, or hash:3/40 \
                 for those whose names fall there (1 to {MOST} shares)"
            )
        };
        let (by, numbers) = match text.split_once(':') {
            None | Some(("count", _)) => (By::Count, text.strip_prefix("count:").unwrap_or(text)),
            Some(("hash", numbers)) => (By::Hash, numbers),
            Some(_) => return Err(wrong()),
        };
        let (number, of) = numbers.split_once('/').ok_or_else(wrong)?;
        let read = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let (number, of) = (read(number)?, read(of)?);
        match (1..=of).contains(&number) && of <= MOST {
            true => Ok(Share { number, of, by }),
            false => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_is_in_exactly_one_share() {
        let names: Vec<String> = (0..500u64)
            .map(|i| format!("{:020x}", u128::from(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 16))
            .collect();
        for by in ["", "count:", "hash:"] {
            let shares: Vec<Share> =
                (1..=7).map(|number| format!("{by}{number}/7").parse().unwrap()).collect();
            for (place, name) in names.iter().enumerate() {
                let having = shares.iter().filter(|share| share.has(place, name)).count();
                assert_eq!(having, 1, "{by} {name}");
            }
            let each = shares.iter().map(|share| {
                names.iter().enumerate().filter(|(place, name)| share.has(*place, name)).count()
            });
            assert!(each.into_iter().all(|count| (40..110).contains(&count)));
        }
    }

    #[test]
    fn what_is_no_share_is_refused_with_an_example() {
        for text in ["0/4", "5/4", "3", "3/", "x/4", "size:1/2", "1/0", "1/999999999", "-1/3", ""] {
            let said = text.parse::<Share>().unwrap_err();
            assert!(said.contains(&format!("\"{text}\"")) && said.contains("3/40"), "{said}");
        }
        assert_eq!("count:3/40".parse::<Share>().unwrap().to_string(), "3/40");
        assert_eq!("hash:3/40".parse::<Share>().unwrap().to_string(), "hash:3/40");
    }
}
