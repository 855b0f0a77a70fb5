//! The compiler's part of the guarantees.

/// What must not compile.
///
/// A guard that outlives its slice, or its vector:
/// ```compile_fail,E0597
/// let mut numbers = [1, 2];
/// let guard;
/// {
///     let shared = fairlock::RangeSlice::new(&mut numbers);
///     guard = shared.read(..).unwrap();
/// }
/// assert_eq!(guard[0], 1);
/// ```
/// ```compile_fail,E0505
/// let shared = fairlock::RangeVec::new(vec![1, 2]);
/// let guard = shared.read(..).unwrap();
/// shared.into_inner();
/// assert_eq!(guard[0], 1);
/// ```
/// A reference that outlives its guard:
/// ```compile_fail,E0505
/// let shared = fairlock::RangeVec::new(vec![1, 2]);
/// let mut guard = shared.write(..).unwrap();
/// let first = &mut guard[0];
/// drop(guard);
/// *first = 3;
/// ```
/// The slice itself, while it is shared:
/// ```compile_fail,E0506
/// let mut numbers = [1, 2];
/// let shared = fairlock::RangeSlice::new(&mut numbers);
/// numbers[0] = 3;
/// shared.read(..).unwrap();
/// ```
/// All elements, beside a guard:
/// ```compile_fail,E0502
/// let mut shared = fairlock::RangeVec::new(vec![1, 2]);
/// let guard = shared.read(..).unwrap();
/// shared.get_mut()[0] = 3;
/// assert_eq!(guard[0], 1);
/// ```
/// Two `&mut` from one guard:
/// ```compile_fail,E0499
/// let shared = fairlock::RangeVec::new(vec![1, 2]);
/// let mut guard = shared.write(..).unwrap();
/// let (one, other) = (&mut guard[..], &mut guard[..]);
/// one[0] = other[0];
/// ```
/// Writing through a read guard:
/// ```compile_fail,E0594
/// let shared = fairlock::RangeVec::new(vec![1, 2]);
/// let mut guard = shared.read(..).unwrap();
/// guard[0] = 3;
/// ```
/// Elements that are not `Sync`, shared between threads:
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::cell::Cell::new(1)]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| shared.read(..).unwrap()[0].set(2));
/// });
/// ```
/// ```compile_fail,E0277
/// let mut cells = [std::cell::Cell::new(1)];
/// let shared = fairlock::RangeSlice::new(&mut cells);
/// std::thread::scope(|scope| {
///     scope.spawn(|| shared.read(..).unwrap()[0].set(2));
/// });
/// ```
/// Elements that are not `Send`, shared between threads or moved to another:
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::rc::Rc::new(1)]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| shared.read(..).unwrap()[0].clone());
/// });
/// ```
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::rc::Rc::new(1)]);
/// std::thread::spawn(move || drop(shared));
/// ```
/// ```compile_fail,E0277
/// // A mutex guard is `Sync`, and must be dropped where it was made.
/// let mutex = std::sync::Mutex::new(1);
/// let shared = fairlock::RangeVec::new(vec![mutex.lock().unwrap()]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| shared.truncate(0));
/// });
/// ```
/// ```compile_fail,E0277
/// let mutex = std::sync::Mutex::new(1);
/// let shared = fairlock::RangeVec::new(vec![mutex.lock().unwrap()]);
/// let guard = shared.write(..).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard));
/// });
/// ```
/// A read guard of elements that are not `Sync`, moved to another thread:
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::cell::Cell::new(1)]);
/// let guard = shared.read(..).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || guard[0].set(2));
/// });
/// ```
/// The same by way of a write guard, which may be moved:
/// ```compile_fail,E0277
/// use fairlock::range::SliceWriteGuard;
///
/// let shared = fairlock::RangeVec::new(vec![std::cell::Cell::new(1)]);
/// let guard = shared.write(..).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || SliceWriteGuard::downgrade(guard)[0].set(2));
/// });
/// ```
/// A write guard of elements that are not `Sync`, shared between threads:
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::cell::Cell::new(1)]);
/// let guard = shared.write(..).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| guard[0].set(2));
/// });
/// ```
/// Elements that do not live as long as they are said to:
/// ```compile_fail,E0597
/// fn put<'a>(words: &fairlock::RangeVec<&'a str>, word: &'a str) {
///     words.write(..1).unwrap()[0] = word;
/// }
/// let words: fairlock::RangeVec<&'static str> = fairlock::RangeVec::new(vec![""]);
/// let word = String::from("short-lived");
/// put(&words, &word);
/// ```
/// ```compile_fail,E0597
/// fn put<'a>(words: &fairlock::RangeSlice<'_, &'a str>, word: &'a str) {
///     words.write(..1).unwrap()[0] = word;
/// }
/// let mut words: [&'static str; 1] = [""];
/// let shared: fairlock::RangeSlice<'_, &'static str> = fairlock::RangeSlice::new(&mut words);
/// let word = String::from("short-lived");
/// put(&shared, &word);
/// ```
struct MustNotCompile;
