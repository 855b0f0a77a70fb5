// Upgrades, downgrades, clocks, condition variables, timers and channels in the standard library's style.
//
//   c++ -std=c++17 upgrade_lock.cpp $(pkg-config --cflags --libs fairlock) && ./a.out

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fairlock.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;

namespace {

int failures = 0;

void expect(bool condition, const char *what) {
    if (!condition) {
        std::cerr << "not so: " << what << "\n";
        failures++;
    }
}

void upgrade_and_downgrade() {
    fairlock::shared_mutex mutex;
    int value = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            for (int round = 0; round < 1000; round++) {
                fairlock::upgrade_lock look(mutex);
                const int seen = value;
                std::unique_lock change = std::move(look).upgrade();
                expect(value == seen, "nobody writes between the look and the change");
                value++;
                std::shared_lock again = fairlock::downgrade(std::move(change));
                expect(value == seen + 1, "nor between the change and the look after it");
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    expect(value == 4000, "no change is lost");
}

void hold_in_every_way() {
    fairlock::shared_mutex mutex;
    fairlock::upgrade_lock deferred(mutex, std::defer_lock);
    expect(!deferred && deferred.mutex() == &mutex, "deferred");
    expect(deferred.try_lock() && deferred.owns_lock(), "and acquired later");
    std::thread([&] {
        fairlock::upgrade_lock second(mutex, std::try_to_lock);
        expect(!second, "one at a time");
        fairlock::upgrade_lock late(mutex, 1ms);
        expect(!late, "also with some time");
        std::shared_lock reader(mutex, std::try_to_lock);
        expect(reader.owns_lock(), "beside readers");
    }).join();
    fairlock::upgrade_lock moved = std::move(deferred);
    expect(moved && !deferred && deferred.mutex() == nullptr, "moved");

    std::shared_lock<fairlock::shared_mutex> other;
    std::thread([&] { mutex.lock_shared(); }).join(); // a reader that stays
    std::unique_lock none = std::move(moved).try_upgrade();
    expect(!none && moved, "a try leaves it upgradable");
    none = std::move(moved).try_upgrade_for(1ms);
    expect(!none && moved, "so does one with some time");
    none = std::move(moved).try_upgrade_until(std::chrono::system_clock::now() + 1ms);
    expect(!none && moved, "on any clock");
    other = std::move(moved).downgrade();
    expect(other.owns_lock() && !moved, "it becomes a reader");
    try {
        moved.unlock();
        expect(false, "an unlock of what is not held is refused");
    } catch (const std::system_error &error) {
        expect(error.code() == std::errc::operation_not_permitted, "and says why");
    }
}

void adopt_and_go_back() {
    fairlock::shared_mutex mutex;
    mutex.lock_upgrade();
    fairlock::upgrade_lock held(mutex, std::adopt_lock);
    for (int i = 0; i < 3; i++) {
        std::unique_lock change = std::move(held).upgrade();
        expect(!held, "it is passed on");
        held = fairlock::downgrade_to_upgrade(std::move(change));
        expect(held && !change, "and comes back");
    }
    expect(held.release() == &mutex && !held, "released without an unlock");
    mutex.unlock_upgrade();
    expect(mutex.try_lock(), "now it is free");
    mutex.unlock();
}

// A clock that is set back by a minute at its second look, and forward again at its third.
struct unsteady_clock {
    using rep = std::chrono::nanoseconds::rep;
    using period = std::nano;
    using duration = std::chrono::nanoseconds;
    using time_point = std::chrono::time_point<unsteady_clock>;
    static constexpr bool is_steady = false;
    static inline int looks = 0;
    static time_point now() {
        looks++;
        return time_point(looks == 1 ? 60s : looks == 2 ? 0s : 61s);
    }
};

void wait_by_clocks() {
    fairlock::mutex mutex;
    std::unique_lock held(mutex);
    std::thread([&] {
        // Looked at before a wait of 1 ms and after it: set back, the deadline has not come; so it tries once more,
        // with the clock's third time.
        const unsteady_clock::time_point deadline(60s + 1ms);
        expect(!mutex.try_lock_until(deadline), "held");
        expect(unsteady_clock::looks == 4, "the clock is asked again after each wait");
        expect(!mutex.try_lock_until(std::chrono::system_clock::now() - 1h), "a time that is over");
        const std::chrono::time_point<std::chrono::system_clock, std::chrono::hours> epoch;
        expect(!mutex.try_lock_until(epoch), "in hours");
    }).join();
    held.unlock();
    expect(mutex.try_lock_until(std::chrono::system_clock::now() - 1h), "a free one, at any time");
    mutex.unlock();
}

void wait_for_a_condition() {
    fairlock::mutex mutex;
    std::condition_variable_any changed;
    int turn = 0;
    std::thread other([&] {
        for (int round = 0; round < 500; round++) {
            std::unique_lock held(mutex);
            changed.wait(held, [&] { return turn % 2 == 1; });
            turn++;
            changed.notify_one();
        }
    });
    for (int round = 0; round < 500; round++) {
        std::unique_lock held(mutex);
        changed.wait(held, [&] { return turn % 2 == 0; });
        turn++;
        changed.notify_one();
    }
    other.join();
    std::unique_lock held(mutex);
    expect(turn == 1000, "two threads take turns");
    expect(!changed.wait_for(held, 1ms, [] { return false; }), "a wait ends");
}

void share_between_processes() {
    struct shared {
        fairlock::process_shared_mutex mutex;
        int value;
    };
    void *pages = mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0);
    if (pages == MAP_FAILED) {
        return expect(false, "memory");
    }
    auto *both = new (pages) shared{};
    const auto add = [both] {
        for (int round = 0; round < 2000; round++) {
            std::unique_lock alone(both->mutex);
            both->value++;
        }
    };
    const pid_t child = fork();
    if (child == 0) {
        add();
        _exit(0);
    }
    add();
    waitpid(child, nullptr, 0);
    std::shared_lock reading(both->mutex, 1s);
    expect(reading.owns_lock() && both->value == 4000, "two processes exclude each other");
    expect(!both->mutex.try_lock_for(1ms), "and readers a writer");
}

void wait_for_timers_and_messages() {
    fairlock::poll poll;
    fairlock::timer timer;
    fairlock::channel<std::string> work(4);
    poll.add(timer, 1, fairlock::readable, fairlock::trigger::level);
    poll.add(work.receiving_end(), 2, fairlock::readable, fairlock::trigger::level);
    fairlock::ready ready[2];
    timer.set_after(1h);
    expect(poll.wait_for(ready, 0s) == 0, "not yet");
    timer.set_every(1us, 1h);
    expect(poll.wait(ready) == 1 && ready[0].token == 1, "it is time");
    expect(timer.take() == 1 && !timer.take(), "once");
    timer.set_at(std::chrono::steady_clock::now() - 1s);
    expect(timer.take() == 1, "a time that is over");
    timer.set_after(0s);
    timer.cancel();
    expect(!timer.take(), "cancelled");

    for (int i = 0; i < 4; i++) {
        auto message = std::make_unique<std::string>("message");
        expect(work.try_send(message) && !message, "sent");
    }
    auto fifth = std::make_unique<std::string>("no room");
    expect(!work.try_send(fifth) && fifth != nullptr, "it stays the sender's");
    expect(poll.wait(ready) == 1 && ready[0].token == 2, "there are messages");
    const auto first = work.try_receive();
    expect(first && *first == "message", "received");
    // Three are left, which the channel deletes.
}

} // namespace

int main() {
    upgrade_and_downgrade();
    hold_in_every_way();
    adopt_and_go_back();
    wait_by_clocks();
    wait_for_a_condition();
    share_between_processes();
    wait_for_timers_and_messages();
    std::cout << failures << " failures\n";
    return failures == 0 ? 0 : 1;
}
