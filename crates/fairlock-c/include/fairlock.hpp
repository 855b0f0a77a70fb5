/*
 * Fairlock for C++17 and later: thin types over fairlock.h, which says what they guarantee.
 *
 *   fairlock::shared_mutex   meets SharedTimedMutex, for std::shared_lock and std::unique_lock
 *   fairlock::mutex          meets TimedMutex, for std::lock_guard and std::scoped_lock
 *   fairlock::range_lock     ranges of positions, with guards
 *   fairlock::poll           waits for the first of many fairlock::counter and fairlock::event
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
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "fairlock.h"

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

/* Attempts it, with times in nanoseconds, until the clock shows the deadline, whatever the clock does
 * meanwhile. A single wait is an hour at most, which any duration can be compared to. */
template <class Clock, class Duration, class Attempt>
int until(const std::chrono::time_point<Clock, Duration> &deadline, Attempt attempt) {
    using std::chrono::hours;
    using std::chrono::nanoseconds;
    for (;;) {
        const auto left = deadline - Clock::now();
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

/* The same for a duration; a century stands for anything longer. */
template <class Rep, class Period, class Attempt>
int during(const std::chrono::duration<Rep, Period> &time, Attempt attempt) {
    using std::chrono::nanoseconds;
    using std::chrono::steady_clock;
    const std::chrono::hours century(24 * 365 * 100);
    nanoseconds wait = nanoseconds::zero();
    if (time > century) {
        wait = century;
    } else if (time > time.zero()) {
        wait = std::chrono::ceil<nanoseconds>(time);
    }
    return until(steady_clock::now() + wait, attempt);
}

} // namespace detail

/* A mutex. Usable in statics: its constructor runs at compile time, and its destructor does nothing. */
class mutex {
public:
    using native_handle_type = fairlock_mutex_t *;

    constexpr mutex() noexcept = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

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
    auto attempt() {
        return [this](std::uint64_t time) { return fairlock_mutex_try_lock_for(&raw_, time); };
    }

    fairlock_mutex_t raw_ = FAIRLOCK_MUTEX_INITIALIZER;
};

/* A reader-writer lock. Usable in statics, as mutex. */
class shared_mutex {
public:
    using native_handle_type = fairlock_rwlock_t *;

    constexpr shared_mutex() noexcept = default;
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

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

    native_handle_type native_handle() noexcept { return &raw_; }

private:
    auto attempt_write() {
        return [this](std::uint64_t time) { return fairlock_rwlock_try_write_for(&raw_, time); };
    }

    auto attempt_read() {
        return [this](std::uint64_t time) { return fairlock_rwlock_try_read_for(&raw_, time); };
    }

    fairlock_rwlock_t raw_ = FAIRLOCK_RWLOCK_INITIALIZER;
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
