//! Former names lead to what there is.

use fairlock::events::Event;
use fairlock_lab::locks;
use fairlock_report::former_names::{EVENTS, LOCKS, event, lock};

#[test]
fn a_former_name_of_a_lock_is_no_lock_s_name_and_leads_to_one() {
    for (former, now) in LOCKS {
        assert!(locks::find(former).is_err(), "{former}");
        assert!(locks::find(now).is_ok(), "{now}");
        assert_eq!((lock(former), lock(now)), (now, now));
    }
}

#[test]
fn a_former_name_of_an_event_is_no_event_s_name_and_leads_to_one() {
    let is_event = |name: &str| Event::ALL.iter().any(|event| event.name() == name);
    for (former, now) in EVENTS {
        assert!(!is_event(former) && is_event(now), "{former}");
        assert_eq!((event(former), event(now)), (now, now));
    }
}
