//! What Fairlock's locks and lists are compared with, and is no part of them. For tests and measurements only:
//! it is not published.
//!
//! * [`flawed`]: ready lists and polls with a mistake, which the checks have to notice.

pub mod flawed;
