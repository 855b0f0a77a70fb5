/*
 * Fairlock for C++17 and later: thin types over fairlock.h, which says what they guarantee.
 *
 *   fairlock::shared_mutex   meets SharedTimedMutex, for std::shared_lock and std::unique_lock
 *   fairlock::upgrade_lock   holds a shared_mutex beside readers, and may become a std::unique_lock
 *   fairlock::mutex          meets TimedMutex, for std::lock_guard and std::scoped_lock
 *   fairlock::condition_variable   waits with a std::unique_lock of a mutex, also for a stop token
 *   fairlock::process_shared_mutex   a shared_mutex for memory that processes share
 *   fairlock::range_lock     ranges of positions, with guards
 *   fairlock::poll           waits for the first of many sources: fairlock::counter, event, timer and
 *                            the ends of fairlock::channel
 *
 * Deadlines may be on any clock: a type with now(), as std::chrono::is_clock asks for. Whether the clock shows
 * the deadline is what counts: where it was set back meanwhile the wait goes on.
 *
 * Misuse that is noticed throws std::system_error with a number of <cerrno> in the generic category:
 * std::errc::resource_deadlock_would_occur if a thread would wait for itself,
 * std::errc::operation_not_permitted if it releases what it does not hold. In a destructor, such as that of
 * std::unique_lock, this ends the program.
 *
 * Unlike with the standard's mutexes, memory may be freed as soon as the last unlock has allowed another
 * thread to acquire the lock, whether or not that unlock has returned.
 */
#ifndef FAIRLOCK_HPP
#define FAIRLOCK_HPP

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <system_error>
#include <type_traits>
#include <utility>

#if __cplusplus >= 202002L
#include <version>
#endif
#ifdef __cpp_lib_jthread
#include <stop_token>
#endif

#include "fairlock.h"

/* Checkers of races take two locks that were at one place of the stack for one lock, unless they are told that the
 * first is gone. So where ThreadSanitizer is compiled in, and with -DFAIRLOCK_CHECKERS=1 for Helgrind and DRD,
 * destructors tell them; they do nothing else. */
#ifndef FAIRLOCK_CHECKERS
#if defined(__SANITIZE_THREAD__)
#define FAIRLOCK_CHECKERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FAIRLOCK_CHECKERS 1
#endif
#endif
#endif

namespace fairlock {

namespace detail {

inline void check(int code, const char *what) {
    if (code != 0) {
        throw std::system_error(code, std::generic_category(), what);
    }
}

/* Whether it was acquired: false if another thread held it, or the time was over. */
inline bool acquired(int code, const char *what) {
    if (code == EBUSY || code == ETIMEDOUT || code == EAGAIN) {
        return false;
    }
    check(code, what);
    return true;
}

/* As std::chrono::is_clock of C++20, as far as it matters here. */
template <class, class = void>
struct is_clock : std::false_type {};

template <class Clock>
struct is_clock<Clock, std::void_t<typename Clock::rep, typename Clock::period,
                                   typename Clock::duration, typename Clock::time_point,
                                   decltype(Clock::is_steady), decltype(Clock::now())>>
    : std::true_type {};

/* How much is left until the clock shows the deadline. */
template <class Clock, class Duration>
auto left_until(const std::chrono::time_point<Clock, Duration> &deadline) {
    static_assert(is_clock<Clock>::value,
                  "fairlock: this deadline is on something that is no clock (it has no now()): use a "
                  "time_point of std::chrono::steady_clock, system_clock or another clock");
    /* Not the difference of a deadline in the distant past, which may be too large. */
    const auto now = Clock::now();
    return now < deadline ? deadline - now : decltype(deadline - now)::zero();
}

/* Attempts it, with times in nanoseconds, until the clock shows the deadline, whatever the clock does
 * meanwhile. A single wait is an hour at most, which any duration can be compared to. */
template <class Clock, class Duration, class Attempt>
int until(const std::chrono::time_point<Clock, Duration> &deadline, Attempt attempt) {
    using std::chrono::hours;
    using std::chrono::nanoseconds;
    for (;;) {
        const auto left = left_until(deadline);
        nanoseconds wait = nanoseconds::zero();
        if (left > hours(1)) {
            wait = hours(1);
        } else if (left > left.zero()) {
            wait = std::chrono::ceil<nanoseconds>(left);
        }
        const int code = attempt(static_cast<std::uint64_t>(wait.count()));
        if (code != ETIMEDOUT || Clock::now() >= deadline) {
            return code;
        }
    }
}

/* A time that is not negative; a century stands for anything longer. */
template <class Rep, class Period>
std::chrono::nanoseconds in_nanoseconds(const std::chrono::duration<Rep, Period> &time) {
    const std::chrono::hours century(24 * 365 * 100);
    /* A century has too many units of less than a nanosecond for an integer. */
    using real = std::chrono::duration<long double>;
    if (real(time) > real(century)) {
        return century;
    }
    return time > time.zero() ? std::chrono::ceil<std::chrono::nanoseconds>(time)
                              : std::chrono::nanoseconds::zero();
}

template <class Rep, class Period>
std::uint64_t whole_nanoseconds(const std::chrono::duration<Rep, Period> &time) {
    return static_cast<std::uint64_t>(in_nanoseconds(time).count());
}

/* The moment at which this time is over. */
template <class Rep, class Period>
auto after(const std::chrono::duration<Rep, Period> &time) {
    return std::chrono::steady_clock::now() + in_nanoseconds(time);
}

/* As until, for a duration. */
template <class Rep, class Period, class Attempt>
int during(const std::chrono::duration<Rep, Period> &time, Attempt attempt) {
    return until(after(time), attempt);
}

} // namespace detail

/* A mutex. Usable in statics: its constructor runs at compile time, and its destructor does nothing. */
class mutex {
    auto attempt() {
        return [this](std::uint64_t time) { return fairlock_mutex_try_lock_for(&raw_, time); };
    }

public:
    using native_handle_type = fairlock_mutex_t *;

    constexpr mutex() noexcept = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;
#ifdef FAIRLOCK_CHECKERS
    ~mutex() { fairlock_lock_ends(&raw_); }
#endif

    void lock() { detail::check(fairlock_mutex_lock(&raw_), "fairlock::mutex::lock"); }

    bool try_lock() {
        return detail::acquired(fairlock_mutex_try_lock(&raw_), "fairlock::mutex::try_lock");
    }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &time) {
        return detail::acquired(detail::during(time, attempt()), "fairlock::mutex::try_lock_for");
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &deadline) {
        return detail::acquired(detail::until(deadline, attempt()),
                                "fairlock::mutex::try_lock_until");
    }

    void unlock() { detail::check(fairlock_mutex_unlock(&raw_), "fairlock::mutex::unlock"); }

    native_handle_type native_handle() noexcept { return &raw_; }

private:
    fairlock_mutex_t raw_ = FAIRLOCK_MUTEX_INITIALIZER;
};

/* A condition variable for fairlock::mutex, with the functions of std::condition_variable_any. Usable
 * in statics, as mutex.
 *
 * It may be destroyed once all threads that wait have been notified, and those with a stop token have
 * returned. A wait throws if the lock holds no mutex, or if threads wait with another mutex; then
 * nothing has changed. Waits without a predicate return only after a notification or at the deadline,
 * with two exceptions: a stop request notifies all threads, and a wait_until whose clock was set back
 * ends early. */
class condition_variable {
public:
    using native_handle_type = fairlock_cond_t *;

    constexpr condition_variable() noexcept = default;
    condition_variable(const condition_variable &) = delete;
    condition_variable &operator=(const condition_variable &) = delete;

    /* Wakes the thread that has waited longest. */
    void notify_one() noexcept { fairlock_cond_signal(&raw_); }

    void notify_all() noexcept { fairlock_cond_broadcast(&raw_); }

    void wait(std::unique_lock<mutex> &lock) {
        const char *what = "fairlock::condition_variable::wait";
        detail::check(fairlock_cond_wait(&raw_, held(lock, what)), what);
    }

    template <class Predicate>
    void wait(std::unique_lock<mutex> &lock, Predicate predicate) {
        while (!predicate()) {
            wait(lock);
        }
    }

    template <class Rep, class Period>
    std::cv_status wait_for(std::unique_lock<mutex> &lock,
                            const std::chrono::duration<Rep, Period> &time) {
        const char *what = "fairlock::condition_variable::wait_for";
        const int code =
            fairlock_cond_wait_for(&raw_, held(lock, what), detail::whole_nanoseconds(time));
        detail::check(code == ETIMEDOUT ? 0 : code, what);
        return code == ETIMEDOUT ? std::cv_status::timeout : std::cv_status::no_timeout;
    }

    /* Whether the predicate holds at the end. */
    template <class Rep, class Period, class Predicate>
    bool wait_for(std::unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &time,
                  Predicate predicate) {
        return wait_until(lock, detail::after(time), std::move(predicate));
    }

    template <class Clock, class Duration>
    std::cv_status wait_until(std::unique_lock<mutex> &lock,
                              const std::chrono::time_point<Clock, Duration> &deadline) {
        const std::cv_status status = wait_for(lock, detail::left_until(deadline));
        return Clock::now() < deadline ? std::cv_status::no_timeout : status;
    }

    /* Whether the predicate holds at the end. */
    template <class Clock, class Duration, class Predicate>
    bool wait_until(std::unique_lock<mutex> &lock,
                    const std::chrono::time_point<Clock, Duration> &deadline,
                    Predicate predicate) {
        while (!predicate()) {
            if (wait_until(lock, deadline) == std::cv_status::timeout) {
                return predicate();
            }
        }
        return true;
    }

#ifdef __cpp_lib_jthread
    /* These also end at a stop request, even if it comes between the predicate and the sleep. The
     * thread that requests it may hold the mutex. They return whether the predicate holds at the
     * end. */

    template <class Predicate>
    bool wait(std::unique_lock<mutex> &lock, std::stop_token token, Predicate predicate) {
        return wait_unless(token, lock, predicate, [] { return UINT64_MAX; });
    }

    template <class Rep, class Period, class Predicate>
    bool wait_for(std::unique_lock<mutex> &lock, std::stop_token token,
                  const std::chrono::duration<Rep, Period> &time, Predicate predicate) {
        return wait_until(lock, std::move(token), detail::after(time), std::move(predicate));
    }

    template <class Clock, class Duration, class Predicate>
    bool wait_until(std::unique_lock<mutex> &lock, std::stop_token token,
                    const std::chrono::time_point<Clock, Duration> &deadline,
                    Predicate predicate) {
        return wait_unless(token, lock, predicate, [&deadline] {
            return detail::whole_nanoseconds(detail::left_until(deadline));
        });
    }
#endif

    native_handle_type native_handle() noexcept { return &raw_; }

private:
    static fairlock_mutex_t *held(const std::unique_lock<mutex> &lock, const char *what) {
        detail::check(lock.owns_lock() ? 0 : EPERM, what);
        return lock.mutex()->native_handle();
    }

#ifdef __cpp_lib_jthread
    /* `left` says for how many nanoseconds the thread may wait. */
    template <class Predicate, class Left>
    bool wait_unless(const std::stop_token &token, std::unique_lock<mutex> &lock,
                     Predicate &predicate, Left left) {
        const char *what = "fairlock::condition_variable::wait";
        std::uint32_t stopped = 0;
        const std::stop_callback stop(token,
                                      [&] { fairlock_cond_interrupt(&raw_, &stopped); });
        while (!predicate()) {
            const int code =
                fairlock_cond_wait_for_unless(&raw_, held(lock, what), left(), &stopped);
            if (code == ECANCELED || (code == ETIMEDOUT && left() == 0)) {
                return predicate();
            }
            detail::check(code == ETIMEDOUT ? 0 : code, what);
        }
        return true;
    }
#endif

    fairlock_cond_t raw_ = FAIRLOCK_COND_INITIALIZER;
};

/* A reader-writer lock. Usable in statics, as mutex. */
class shared_mutex {
    void downgrade(const char *what) { detail::check(fairlock_rwlock_downgrade(&raw_), what); }

    auto attempt_upgradable() {
        return
            [this](std::uint64_t time) { return fairlock_rwlock_try_upgradable_for(&raw_, time); };
    }

    auto attempt_upgrade() {
        return [this](std::uint64_t time) { return fairlock_rwlock_try_upgrade_for(&raw_, time); };
    }

    auto attempt_write() {
        return [this](std::uint64_t time) { return fairlock_rwlock_try_write_for(&raw_, time); };
    }

    auto attempt_read() {
        return [this](std::uint64_t time) { return fairlock_rwlock_try_read_for(&raw_, time); };
    }

public:
    using native_handle_type = fairlock_rwlock_t *;

    constexpr shared_mutex() noexcept = default;
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;
#ifdef FAIRLOCK_CHECKERS
    ~shared_mutex() { fairlock_lock_ends(&raw_); }
#endif

    void lock() { detail::check(fairlock_rwlock_write(&raw_), "fairlock::shared_mutex::lock"); }

    bool try_lock() {
        return detail::acquired(fairlock_rwlock_try_write(&raw_),
                                "fairlock::shared_mutex::try_lock");
    }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &time) {
        return detail::acquired(detail::during(time, attempt_write()),
                                "fairlock::shared_mutex::try_lock_for");
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &deadline) {
        return detail::acquired(detail::until(deadline, attempt_write()),
                                "fairlock::shared_mutex::try_lock_until");
    }

    void unlock() {
        detail::check(fairlock_rwlock_unlock_write(&raw_), "fairlock::shared_mutex::unlock");
    }

    void lock_shared() {
        detail::check(fairlock_rwlock_read(&raw_), "fairlock::shared_mutex::lock_shared");
    }

    bool try_lock_shared() {
        return detail::acquired(fairlock_rwlock_try_read(&raw_),
                                "fairlock::shared_mutex::try_lock_shared");
    }

    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time) {
        return detail::acquired(detail::during(time, attempt_read()),
                                "fairlock::shared_mutex::try_lock_shared_for");
    }

    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &deadline) {
        return detail::acquired(detail::until(deadline, attempt_read()),
                                "fairlock::shared_mutex::try_lock_shared_until");
    }

    void unlock_shared() {
        detail::check(fairlock_rwlock_unlock_read(&raw_), "fairlock::shared_mutex::unlock_shared");
    }

    /* Beside readers, one thread may hold it with the right to upgrade. The names are those of Boost's
     * UpgradeLockable; fairlock::upgrade_lock calls them. */

    void lock_upgrade() {
        detail::check(fairlock_rwlock_upgradable(&raw_), "fairlock::shared_mutex::lock_upgrade");
    }

    bool try_lock_upgrade() {
        return detail::acquired(fairlock_rwlock_try_upgradable(&raw_),
                                "fairlock::shared_mutex::try_lock_upgrade");
    }

    template <class Rep, class Period>
    bool try_lock_upgrade_for(const std::chrono::duration<Rep, Period> &time) {
        return detail::acquired(detail::during(time, attempt_upgradable()),
                                "fairlock::shared_mutex::try_lock_upgrade_for");
    }

    template <class Clock, class Duration>
    bool try_lock_upgrade_until(const std::chrono::time_point<Clock, Duration> &deadline) {
        return detail::acquired(detail::until(deadline, attempt_upgradable()),
                                "fairlock::shared_mutex::try_lock_upgrade_until");
    }

    void unlock_upgrade() {
        detail::check(fairlock_rwlock_unlock_upgradable(&raw_),
                      "fairlock::shared_mutex::unlock_upgrade");
    }

    /* From upgradable to exclusive. Those that try leave it upgradable if they return false. */

    void unlock_upgrade_and_lock() {
        detail::check(fairlock_rwlock_upgrade(&raw_),
                      "fairlock::shared_mutex::unlock_upgrade_and_lock");
    }

    bool try_unlock_upgrade_and_lock() {
        return detail::acquired(fairlock_rwlock_try_upgrade(&raw_),
                                "fairlock::shared_mutex::try_unlock_upgrade_and_lock");
    }

    template <class Rep, class Period>
    bool try_unlock_upgrade_and_lock_for(const std::chrono::duration<Rep, Period> &time) {
        return detail::acquired(detail::during(time, attempt_upgrade()),
                                "fairlock::shared_mutex::try_unlock_upgrade_and_lock_for");
    }

    template <class Clock, class Duration>
    bool
    try_unlock_upgrade_and_lock_until(const std::chrono::time_point<Clock, Duration> &deadline) {
        return detail::acquired(detail::until(deadline, attempt_upgrade()),
                                "fairlock::shared_mutex::try_unlock_upgrade_and_lock_until");
    }

    /* From more to less, without a moment in which nobody holds it. */

    void unlock_and_lock_shared() { downgrade("fairlock::shared_mutex::unlock_and_lock_shared"); }

    void unlock_upgrade_and_lock_shared() {
        downgrade("fairlock::shared_mutex::unlock_upgrade_and_lock_shared");
    }

    void unlock_and_lock_upgrade() {
        detail::check(fairlock_rwlock_downgrade_to_upgradable(&raw_),
                      "fairlock::shared_mutex::unlock_and_lock_upgrade");
    }

    native_handle_type native_handle() noexcept { return &raw_; }

private:
    fairlock_rwlock_t raw_ = FAIRLOCK_RWLOCK_INITIALIZER;
};

/* Holds a shared_mutex upgradable, as std::unique_lock holds it exclusively: it can be moved, deferred,
 * adopted, and unlocked early. At most one thread holds a mutex so; readers come and go beside it.
 *
 *   fairlock::upgrade_lock look(mutex);
 *   if (something has to change) {
 *       std::unique_lock change = std::move(look).upgrade();     // nobody wrote in between
 *       ...
 *       std::shared_lock again = fairlock::downgrade(std::move(change));
 *   }
 */
template <class Mutex>
class upgrade_lock {
public:
    using mutex_type = Mutex;

    upgrade_lock() noexcept = default;
    explicit upgrade_lock(Mutex &mutex) : mutex_(&mutex) { lock(); }
    upgrade_lock(Mutex &mutex, std::defer_lock_t) noexcept : mutex_(&mutex) {}
    upgrade_lock(Mutex &mutex, std::try_to_lock_t) : mutex_(&mutex) { try_lock(); }
    upgrade_lock(Mutex &mutex, std::adopt_lock_t) noexcept : mutex_(&mutex), owns_(true) {}

    template <class Rep, class Period>
    upgrade_lock(Mutex &mutex, const std::chrono::duration<Rep, Period> &time) : mutex_(&mutex) {
        try_lock_for(time);
    }

    template <class Clock, class Duration>
    upgrade_lock(Mutex &mutex, const std::chrono::time_point<Clock, Duration> &deadline)
        : mutex_(&mutex) {
        try_lock_until(deadline);
    }

    upgrade_lock(upgrade_lock &&other) noexcept
        : mutex_(std::exchange(other.mutex_, nullptr)), owns_(std::exchange(other.owns_, false)) {}

    upgrade_lock &operator=(upgrade_lock &&other) noexcept {
        upgrade_lock(std::move(other)).swap(*this);
        return *this;
    }

    ~upgrade_lock() {
        if (owns_) {
            mutex_->unlock_upgrade();
        }
    }

    void lock() {
        must_be(false, "fairlock::upgrade_lock::lock");
        mutex_->lock_upgrade();
        owns_ = true;
    }

    bool try_lock() {
        must_be(false, "fairlock::upgrade_lock::try_lock");
        return owns_ = mutex_->try_lock_upgrade();
    }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &time) {
        must_be(false, "fairlock::upgrade_lock::try_lock_for");
        return owns_ = mutex_->try_lock_upgrade_for(time);
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &deadline) {
        must_be(false, "fairlock::upgrade_lock::try_lock_until");
        return owns_ = mutex_->try_lock_upgrade_until(deadline);
    }

    void unlock() {
        must_be(true, "fairlock::upgrade_lock::unlock");
        mutex_->unlock_upgrade();
        owns_ = false;
    }

    /* Waits until the readers have left, and holds it exclusively. This object then has no mutex. */
    [[nodiscard]] std::unique_lock<Mutex> upgrade() && {
        must_be(true, "fairlock::upgrade_lock::upgrade");
        mutex_->unlock_upgrade_and_lock();
        return passed_on<std::unique_lock<Mutex>>();
    }

    /* The same if no thread reads. Otherwise the result owns nothing, and this object goes on as it is. */
    [[nodiscard]] std::unique_lock<Mutex> try_upgrade() && {
        must_be(true, "fairlock::upgrade_lock::try_upgrade");
        return upgraded(mutex_->try_unlock_upgrade_and_lock());
    }

    /* The same, waiting for at most this time. */
    template <class Rep, class Period>
    [[nodiscard]] std::unique_lock<Mutex>
    try_upgrade_for(const std::chrono::duration<Rep, Period> &time) && {
        must_be(true, "fairlock::upgrade_lock::try_upgrade_for");
        return upgraded(mutex_->try_unlock_upgrade_and_lock_for(time));
    }

    /* The same, waiting until the deadline. */
    template <class Clock, class Duration>
    [[nodiscard]] std::unique_lock<Mutex>
    try_upgrade_until(const std::chrono::time_point<Clock, Duration> &deadline) && {
        must_be(true, "fairlock::upgrade_lock::try_upgrade_until");
        return upgraded(mutex_->try_unlock_upgrade_and_lock_until(deadline));
    }

    /* Goes on as a reader. This object then has no mutex. */
    [[nodiscard]] std::shared_lock<Mutex> downgrade() && {
        must_be(true, "fairlock::upgrade_lock::downgrade");
        mutex_->unlock_upgrade_and_lock_shared();
        return passed_on<std::shared_lock<Mutex>>();
    }

    void swap(upgrade_lock &other) noexcept {
        std::swap(mutex_, other.mutex_);
        std::swap(owns_, other.owns_);
    }

    /* Forgets the mutex, and leaves it as it is. */
    Mutex *release() noexcept {
        owns_ = false;
        return std::exchange(mutex_, nullptr);
    }

    bool owns_lock() const noexcept { return owns_; }
    explicit operator bool() const noexcept { return owns_; }
    Mutex *mutex() const noexcept { return mutex_; }

private:
    void must_be(bool owned, const char *what) const {
        detail::check(mutex_ == nullptr ? EPERM : 0, what);
        detail::check(owns_ == owned ? 0 : owned ? EPERM : EDEADLK, what);
    }

    template <class Lock>
    Lock passed_on() {
        return Lock(*release(), std::adopt_lock);
    }

    std::unique_lock<Mutex> upgraded(bool is_upgraded) {
        return is_upgraded ? passed_on<std::unique_lock<Mutex>>() : std::unique_lock<Mutex>();
    }

    Mutex *mutex_ = nullptr;
    bool owns_ = false;
};

template <class Mutex>
void swap(upgrade_lock<Mutex> &one, upgrade_lock<Mutex> &other) noexcept {
    one.swap(other);
}

/* From exclusive to shared; readers that wait may enter. The argument then has no mutex. */
template <class Mutex>
[[nodiscard]] std::shared_lock<Mutex> downgrade(std::unique_lock<Mutex> &&held) {
    detail::check(held.owns_lock() ? 0 : EPERM, "fairlock::downgrade");
    held.mutex()->unlock_and_lock_shared();
    return std::shared_lock<Mutex>(*held.release(), std::adopt_lock);
}

/* From exclusive to upgradable; readers that wait may enter. The argument then has no mutex. */
template <class Mutex>
[[nodiscard]] upgrade_lock<Mutex> downgrade_to_upgrade(std::unique_lock<Mutex> &&held) {
    detail::check(held.owns_lock() ? 0 : EPERM, "fairlock::downgrade_to_upgrade");
    held.mutex()->unlock_and_lock_upgrade();
    return upgrade_lock<Mutex>(*held.release(), std::adopt_lock);
}

/* A reader-writer lock for memory that processes share: it meets SharedTimedMutex. New pages are such a lock,
 * free; so is what placement new makes. It has no destructor to call. */
class process_shared_mutex {
    auto attempt_write() {
        return [this](std::uint64_t time) {
            return fairlock_process_shared_try_write_for(&raw_, time);
        };
    }

    auto attempt_read() {
        return [this](std::uint64_t time) {
            return fairlock_process_shared_try_read_for(&raw_, time);
        };
    }

public:
    using native_handle_type = fairlock_process_shared_t *;

    constexpr process_shared_mutex() noexcept = default;
    process_shared_mutex(const process_shared_mutex &) = delete;
    process_shared_mutex &operator=(const process_shared_mutex &) = delete;

    void lock() {
        detail::check(fairlock_process_shared_write(&raw_), "fairlock::process_shared_mutex::lock");
    }

    bool try_lock() {
        return detail::acquired(fairlock_process_shared_try_write(&raw_),
                                "fairlock::process_shared_mutex::try_lock");
    }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &time) {
        return detail::acquired(detail::during(time, attempt_write()),
                                "fairlock::process_shared_mutex::try_lock_for");
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &deadline) {
        return detail::acquired(detail::until(deadline, attempt_write()),
                                "fairlock::process_shared_mutex::try_lock_until");
    }

    void unlock() {
        detail::check(fairlock_process_shared_unlock_write(&raw_),
                      "fairlock::process_shared_mutex::unlock");
    }

    void lock_shared() {
        detail::check(fairlock_process_shared_read(&raw_),
                      "fairlock::process_shared_mutex::lock_shared");
    }

    bool try_lock_shared() {
        return detail::acquired(fairlock_process_shared_try_read(&raw_),
                                "fairlock::process_shared_mutex::try_lock_shared");
    }

    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time) {
        return detail::acquired(detail::during(time, attempt_read()),
                                "fairlock::process_shared_mutex::try_lock_shared_for");
    }

    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &deadline) {
        return detail::acquired(detail::until(deadline, attempt_read()),
                                "fairlock::process_shared_mutex::try_lock_shared_until");
    }

    void unlock_shared() {
        detail::check(fairlock_process_shared_unlock_read(&raw_),
                      "fairlock::process_shared_mutex::unlock_shared");
    }

    native_handle_type native_handle() noexcept { return &raw_; }

private:
    fairlock_process_shared_t raw_ = FAIRLOCK_PROCESS_SHARED_INITIALIZER;
};

/* As a length of a range: all from its offset on. */
inline constexpr std::uint64_t to_end = FAIRLOCK_TO_END;

/* A range that is held; released when it is destroyed, on any thread. */
class range_guard {
public:
    range_guard(const range_guard &) = delete;
    range_guard &operator=(const range_guard &) = delete;

    range_guard(range_guard &&other) noexcept
        : hold_(other.hold_), held_(std::exchange(other.held_, false)) {}

    range_guard &operator=(range_guard &&other) noexcept {
        if (this != &other) {
            release();
            hold_ = other.hold_;
            held_ = std::exchange(other.held_, false);
        }
        return *this;
    }

    ~range_guard() { release(); }

    /* False of one that was unlocked, or moved from. */
    bool owns_lock() const noexcept { return held_; }

    /* Releases it before the end. */
    void unlock() {
        detail::check(held_ ? 0 : EPERM, "fairlock::range_guard::unlock");
        release();
    }

    /* Turns an exclusive range into a shared one; threads that wait to share it acquire it. */
    void downgrade() {
        detail::check(held_ ? fairlock_range_downgrade(&hold_) : EPERM,
                      "fairlock::range_guard::downgrade");
    }

private:
    friend class range_lock;

    range_guard() noexcept = default;

    void release() noexcept {
        if (std::exchange(held_, false)) {
            fairlock_range_unlock(&hold_);
        }
    }

    fairlock_range_hold_t hold_{};
    bool held_ = false;
};

/* A lock over ranges of positions: read acquires a range shared, write exclusively. */
class range_lock {
public:
    range_lock() : raw_(fairlock_range_lock_new()) {
        if (raw_ == nullptr) {
            throw std::bad_alloc();
        }
    }
    range_lock(const range_lock &) = delete;
    range_lock &operator=(const range_lock &) = delete;

    /* No range of it is held. */
    ~range_lock() { fairlock_range_lock_free(raw_); }

    range_guard read(std::uint64_t offset, std::uint64_t length) {
        range_guard guard;
        detail::check(fairlock_range_read(raw_, offset, length, &guard.hold_),
                      "fairlock::range_lock::read");
        guard.held_ = true;
        return guard;
    }

    range_guard write(std::uint64_t offset, std::uint64_t length) {
        range_guard guard;
        detail::check(fairlock_range_write(raw_, offset, length, &guard.hold_),
                      "fairlock::range_lock::write");
        guard.held_ = true;
        return guard;
    }

    std::optional<range_guard> try_read(std::uint64_t offset, std::uint64_t length) {
        range_guard guard;
        return tried(fairlock_range_try_read(raw_, offset, length, &guard.hold_), guard);
    }

    std::optional<range_guard> try_write(std::uint64_t offset, std::uint64_t length) {
        range_guard guard;
        return tried(fairlock_range_try_write(raw_, offset, length, &guard.hold_), guard);
    }

    template <class Rep, class Period>
    std::optional<range_guard> try_read_for(std::uint64_t offset, std::uint64_t length,
                                            const std::chrono::duration<Rep, Period> &time) {
        range_guard guard;
        return tried(detail::during(time,
                                    [&](std::uint64_t wait) {
                                        return fairlock_range_try_read_for(raw_, offset, length,
                                                                           wait, &guard.hold_);
                                    }),
                     guard);
    }

    template <class Rep, class Period>
    std::optional<range_guard> try_write_for(std::uint64_t offset, std::uint64_t length,
                                             const std::chrono::duration<Rep, Period> &time) {
        range_guard guard;
        return tried(detail::during(time,
                                    [&](std::uint64_t wait) {
                                        return fairlock_range_try_write_for(raw_, offset, length,
                                                                            wait, &guard.hold_);
                                    }),
                     guard);
    }

    fairlock_range_lock_t *native_handle() noexcept { return raw_; }

private:
    static std::optional<range_guard> tried(int code, range_guard &guard) {
        if (!detail::acquired(code, "fairlock::range_lock::try")) {
            return std::nullopt;
        }
        guard.held_ = true;
        return std::optional<range_guard>(std::move(guard));
    }

    fairlock_range_lock_t *raw_;
};

/* What a source is ready for; sets of them are made with |. */
inline constexpr std::uint32_t readable = FAIRLOCK_READABLE;
inline constexpr std::uint32_t writable = FAIRLOCK_WRITABLE;
inline constexpr std::uint32_t closed = FAIRLOCK_CLOSED;

/* When a source is reported. */
enum class trigger : std::uint32_t {
    level = FAIRLOCK_LEVEL,
    edge = FAIRLOCK_EDGE,
    once = FAIRLOCK_ONCE,
};

/* Something that threads signal and that a poll waits for. Destroying it removes it from its poll. */
class source {
public:
    source(const source &) = delete;
    source &operator=(const source &) = delete;

    fairlock_source_t *native_handle() noexcept { return raw_; }

protected:
    explicit source(fairlock_source_t *raw) : raw_(raw) {
        if (raw_ == nullptr) {
            throw std::bad_alloc();
        }
    }
    ~source() { fairlock_source_free(raw_); }

    fairlock_source_t *raw_;
};

/* Counts what threads add, and is taken as a whole: readable while it is not zero. */
class counter : public source {
public:
    explicit counter(std::uint64_t count = 0) : source(fairlock_counter_new(count)) {}

    void add(std::uint64_t count) {
        detail::check(fairlock_counter_add(raw_, count), "fairlock::counter::add");
    }

    /* None if it is zero. */
    std::optional<std::uint64_t> take() {
        std::uint64_t count = 0;
        const int code = fairlock_counter_take(raw_, &count);
        return detail::acquired(code, "fairlock::counter::take") ? std::optional(count)
                                                                 : std::nullopt;
    }
};

/* Is ready for what threads set. */
class event : public source {
public:
    event() : source(fairlock_event_new()) {}

    void set(std::uint32_t readiness) {
        detail::check(fairlock_event_set(raw_, readiness), "fairlock::event::set");
    }

    void clear(std::uint32_t readiness) {
        detail::check(fairlock_event_clear(raw_, readiness), "fairlock::event::clear");
    }
};

/* Is readable from when its time has come until it is taken, set anew or cancelled. */
class timer : public source {
public:
    timer() : source(fairlock_timer_new()) {}

    /* To expire once, after this time. */
    template <class Rep, class Period>
    void set_after(const std::chrono::duration<Rep, Period> &time) {
        detail::check(fairlock_timer_set_after(raw_, detail::whole_nanoseconds(time)),
                      "fairlock::timer::set_after");
    }

    /* To expire once, at this moment. */
    template <class Duration>
    void set_at(const std::chrono::time_point<std::chrono::steady_clock, Duration> &deadline) {
        set_after(deadline - std::chrono::steady_clock::now());
    }

    /* To expire after `first`, and then every `period`, which is longer than zero. */
    template <class Rep, class Period, class EveryRep, class EveryPeriod>
    void set_every(const std::chrono::duration<Rep, Period> &first,
                   const std::chrono::duration<EveryRep, EveryPeriod> &period) {
        detail::check(fairlock_timer_set_every(raw_, detail::whole_nanoseconds(first),
                                               detail::whole_nanoseconds(period)),
                      "fairlock::timer::set_every");
    }

    void cancel() { detail::check(fairlock_timer_cancel(raw_), "fairlock::timer::cancel"); }

    /* How often it has expired since it was set or last taken; none if it has not. */
    std::optional<std::uint64_t> take() {
        std::uint64_t expirations = 0;
        const int code = fairlock_timer_take(raw_, &expirations);
        return detail::acquired(code, "fairlock::timer::take") ? std::optional(expirations)
                                                               : std::nullopt;
    }
};

/* A bounded channel of objects, from any number of threads to any number. It deletes what nobody received. */
template <class T>
class channel {
public:
    /* With room for so many messages. */
    explicit channel(std::size_t capacity) : channel(ends(capacity)) {}

    channel(const channel &) = delete;
    channel &operator=(const channel &) = delete;

    ~channel() {
        while (try_receive()) {
        }
    }

    /* False if there is no room: then the message stays the caller's. It is not null. */
    bool try_send(std::unique_ptr<T> &message) {
        const int code = fairlock_channel_send(sending_.native_handle(), message.get());
        if (!detail::acquired(code, "fairlock::channel::try_send")) {
            return false;
        }
        static_cast<void>(message.release());
        return true;
    }

    /* None if there is no message. */
    std::unique_ptr<T> try_receive() {
        void *message = nullptr;
        const int code = fairlock_channel_receive(receiving_.native_handle(), &message);
        detail::acquired(code, "fairlock::channel::try_receive");
        return std::unique_ptr<T>(static_cast<T *>(message));
    }

    /* Writable while there is room. */
    source &sending_end() noexcept { return sending_; }
    /* Readable while there is a message. */
    source &receiving_end() noexcept { return receiving_; }

private:
    struct end : source {
        explicit end(fairlock_source_t *raw) : source(raw) {}
    };
    using pair = std::pair<fairlock_source_t *, fairlock_source_t *>;

    static pair ends(std::size_t capacity) {
        pair both{nullptr, nullptr};
        const int code = fairlock_channel_new(capacity, &both.first, &both.second);
        if (code == ENOMEM) {
            throw std::bad_alloc();
        }
        detail::check(code, "fairlock::channel");
        return both;
    }

    explicit channel(const pair &both) : sending_(both.first), receiving_(both.second) {}

    end sending_;
    end receiving_;
};

/* One source that a wait found ready. */
using ready = fairlock_ready_t;

/* Waits for the first of many sources. */
class poll {
public:
    poll() : raw_(fairlock_poll_new()) {
        if (raw_ == nullptr) {
            throw std::bad_alloc();
        }
    }
    poll(const poll &) = delete;
    poll &operator=(const poll &) = delete;

    /* No thread waits. */
    ~poll() { fairlock_poll_free(raw_); }

    void add(source &source, std::uint64_t token, std::uint32_t interest, trigger when) {
        detail::check(fairlock_poll_add(raw_, source.native_handle(), token, interest,
                                        static_cast<std::uint32_t>(when)),
                      "fairlock::poll::add");
    }

    void modify(source &source, std::uint64_t token, std::uint32_t interest, trigger when) {
        detail::check(fairlock_poll_modify(raw_, source.native_handle(), token, interest,
                                           static_cast<std::uint32_t>(when)),
                      "fairlock::poll::modify");
    }

    void remove(source &source) {
        detail::check(fairlock_poll_remove(raw_, source.native_handle()), "fairlock::poll::remove");
    }

    /* Waits for as long as necessary; returns how many elements of the array it has filled. */
    std::size_t wait(ready *into, std::size_t capacity) {
        std::size_t count = 0;
        detail::check(fairlock_poll_wait(raw_, into, capacity, FAIRLOCK_FOR_EVER, &count),
                      "fairlock::poll::wait");
        return count;
    }

    template <std::size_t Capacity>
    std::size_t wait(ready (&into)[Capacity]) {
        return wait(into, Capacity);
    }

    /* Waits for at most this time, and not at all if that is zero. Returns 0 if nothing was ready. */
    template <class Rep, class Period>
    std::size_t wait_for(ready *into, std::size_t capacity,
                         const std::chrono::duration<Rep, Period> &time) {
        std::size_t count = 0;
        const int code = detail::during(time, [&](std::uint64_t wait) {
            return fairlock_poll_wait(raw_, into, capacity, static_cast<std::int64_t>(wait),
                                      &count);
        });
        detail::check(code == ETIMEDOUT ? 0 : code, "fairlock::poll::wait_for");
        return count;
    }

    template <std::size_t Capacity, class Rep, class Period>
    std::size_t wait_for(ready (&into)[Capacity],
                         const std::chrono::duration<Rep, Period> &time) {
        return wait_for(into, Capacity, time);
    }

    /* A descriptor for other event loops; it belongs to the poll. */
    int descriptor() {
        int descriptor = -1;
        detail::check(fairlock_poll_descriptor(raw_, &descriptor), "fairlock::poll::descriptor");
        return descriptor;
    }

    fairlock_poll_t *native_handle() noexcept { return raw_; }

private:
    fairlock_poll_t *raw_;
};

} // namespace fairlock

#endif /* FAIRLOCK_HPP */
