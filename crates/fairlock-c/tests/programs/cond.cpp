// fairlock::condition_variable, with each of its functions. In C++20 with stop tokens, too.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include <fairlock.hpp>

using namespace std::chrono_literals;

namespace {

void expect(bool condition, const char *what) {
    if (!condition) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::exit(1);
    }
}

// Stands still, and is set by the program.
struct set_clock {
    using rep = long;
    using period = std::nano;
    using duration = std::chrono::nanoseconds;
    using time_point = std::chrono::time_point<set_clock>;
    static constexpr bool is_steady = false;
    static inline int asked = 0;

    // One that was set back shows the deadline, the epoch, at the third look.
    static time_point now() { return time_point(asked++ < 2 ? -1ns : 0ns); }
};

fairlock::mutex mutex;
fairlock::condition_variable changed; // made at compile time
int value = 0;

// Calls `wait`, with the mutex, until another thread has made the value this one.
template <class Wait>
void wait_while_another_thread_sets(int to, void (fairlock::condition_variable::*notify)(),
                                    Wait wait) {
    std::unique_lock lock(mutex);
    std::thread other([to, notify] {
        {
            const std::lock_guard lock(mutex);
            value = to;
        }
        (changed.*notify)();
    });
    wait(lock);
    expect(value == to && lock.owns_lock(), "the other thread was waited for");
    expect(!mutex.try_lock(), "the mutex is held again");
    other.join();
}

void wait_for_a_change() {
    using fairlock::condition_variable;
    const auto one = [](auto wait, int to) {
        wait_while_another_thread_sets(to, &condition_variable::notify_one, wait);
    };
    const auto all = [](auto wait, int to) {
        wait_while_another_thread_sets(to, &condition_variable::notify_all, wait);
    };
    const auto day = std::chrono::system_clock::now() + 24h;
    for (int to = 0; to < 500; to += 5) {
        one([&](auto &lock) { changed.wait(lock, [&] { return value == to + 1; }); }, to + 1);
        all(
            [&](auto &lock) {
                while (value != to + 2) {
                    changed.wait(lock);
                }
            },
            to + 2);
        all(
            [&](auto &lock) {
                const auto is_set = [&] { return value == to + 3; };
                const auto ever = std::chrono::hours::max();
                expect(changed.wait_for(lock, ever, is_set), "a wait of any length");
            },
            to + 3);
        one(
            [&](auto &lock) {
                expect(changed.wait_until(lock, day, [&] { return value == to + 4; }), "any clock");
            },
            to + 4);
        one(
            [&](auto &lock) {
                while (value != to + 5) {
                    const auto status = changed.wait_until(lock, day);
                    expect(status == std::cv_status::no_timeout, "a notification");
                }
            },
            to + 5);
    }
}

void run_out_of_time() {
    std::unique_lock lock(mutex);
    const auto never = [] { return false; };
    const auto past = std::chrono::steady_clock::now();
    expect(changed.wait_for(lock, -1h) == std::cv_status::timeout, "a time that is over");
    expect(changed.wait_for(lock, 1us) == std::cv_status::timeout, "a short time");
    using picoseconds = std::chrono::duration<std::int64_t, std::pico>;
    expect(changed.wait_for(lock, picoseconds(1000)) == std::cv_status::timeout, "picoseconds");
    const auto long_ago = std::chrono::steady_clock::time_point::min();
    expect(changed.wait_until(lock, long_ago) == std::cv_status::timeout, "in the distant past");
    expect(changed.wait_until(lock, past) == std::cv_status::timeout, "a moment that is over");
    expect(!changed.wait_for(lock, 1us, never), "the predicate does not hold");
    expect(!changed.wait_until(lock, past, never), "nor here");
    int looks = 0;
    const auto late = [&looks] { return ++looks == 2; };
    expect(changed.wait_until(lock, past, late), "it is looked at after the deadline");
}

// The wait is not over before the clock says so.
void wait_for_a_clock_that_is_set() {
    std::unique_lock lock(mutex);
    const set_clock::time_point deadline(0ns);
    const auto never = [] { return false; };
    set_clock::asked = 0;
    expect(changed.wait_until(lock, deadline) == std::cv_status::no_timeout, "early");
    expect(changed.wait_until(lock, deadline) == std::cv_status::timeout, "in time");
    set_clock::asked = 0;
    expect(!changed.wait_until(lock, deadline, never), "no notification");
    expect(set_clock::asked > 2, "the clock was asked");
}

template <class Wait>
void must_be_refused(std::errc expected, Wait wait) {
    try {
        wait();
        expect(false, "misuse is refused");
    } catch (const std::system_error &error) {
        expect(error.code() == expected, error.what());
    }
}

void refuse_misuse() {
    std::unique_lock<fairlock::mutex> none, unlocked(mutex, std::defer_lock);
    for (std::unique_lock<fairlock::mutex> *lock : {&none, &unlocked}) {
        must_be_refused(std::errc::operation_not_permitted, [&] { changed.wait(*lock); });
        must_be_refused(std::errc::operation_not_permitted, [&] { changed.wait_for(*lock, 1h); });
    }

    bool waits = false, end = false;
    std::thread waiter([&] {
        std::unique_lock lock(mutex);
        waits = true;
        changed.wait(lock, [&] { return end; });
    });
    std::unique_lock lock(mutex);
    while (!waits) {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
    }
    fairlock::mutex second;
    std::unique_lock other(second);
    must_be_refused(std::errc::device_or_resource_busy, [&] { changed.wait(other); });
    must_be_refused(std::errc::device_or_resource_busy, [&] { changed.wait_for(other, 1h); });
    expect(!second.try_lock(), "still held");
    end = true;
    lock.unlock();
    changed.notify_one();
    waiter.join();
    expect(changed.wait_for(other, 0s) == std::cv_status::timeout, "now with the second");
}

#ifdef __cpp_lib_jthread
void stop_at_a_request() {
    const auto never = [] { return false; };
    const auto always = [] { return true; };
    const auto stopped = std::make_unique<std::stop_source>();
    stopped->request_stop();
    std::unique_lock lock(mutex);
    expect(!changed.wait(lock, stopped->get_token(), never), "stopped before it began");
    expect(changed.wait(lock, stopped->get_token(), always), "no need to wait");
    expect(!changed.wait_for(lock, stopped->get_token(), 24h, never), "the same with a time");
    expect(!changed.wait_until(lock, stopped->get_token(), set_clock::time_point(1ns), never),
           "the same with a clock");
    expect(!changed.wait_for(lock, std::stop_token(), 1us, never), "one that never stops");
    // By its own thread, between the predicate and the sleep.
    const auto own = std::make_unique<std::stop_source>();
    const auto stop = [&] { return own->request_stop() && false; };
    expect(!changed.wait(lock, own->get_token(), stop), "stopped by its own predicate");
    lock.unlock();
    wait_while_another_thread_sets(-1, &fairlock::condition_variable::notify_one, [](auto &held) {
        expect(changed.wait(held, std::stop_token(), [] { return value == -1; }), "notified");
    });

    // At whatever moment, with and without the mutex.
    for (int round = 0; round < 300; round++) {
        std::jthread waiter([&](std::stop_token token) {
            std::unique_lock waiting(mutex);
            const bool holds = round % 2 == 0 ? changed.wait(waiting, token, never)
                                              : changed.wait_for(waiting, token, 24h, never);
            expect(!holds && token.stop_requested() && !mutex.try_lock(), "stopped, and held");
        });
        for (volatile int moment = 0; moment < round * 50;) {
            moment = moment + 1;
        }
        std::unique_lock held(mutex, std::defer_lock);
        if (round % 3 == 0) {
            held.lock();
        }
        waiter.request_stop();
    }
}
#endif

} // namespace

int main() {
    wait_for_a_change();
    run_out_of_time();
    wait_for_a_clock_that_is_set();
    refuse_misuse();
#ifdef __cpp_lib_jthread
    stop_at_a_request();
#endif
    expect(fairlock_cond_destroy(changed.native_handle()) == 0, "no thread waits");
    return 0;
}
