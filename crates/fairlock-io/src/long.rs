//! How far tests go: in the suite as far as mistakes are known to be found, and further with
//! `FAIRLOCK_LONG=1`.

/// `in_suite`, or `when_long` if the environment asks for a long run.
pub(crate) fn depth<N>(in_suite: N, when_long: N) -> N {
    let is_long = std::env::var_os("FAIRLOCK_LONG").is_some_and(|value| value == "1");
    if is_long { when_long } else { in_suite }
}
