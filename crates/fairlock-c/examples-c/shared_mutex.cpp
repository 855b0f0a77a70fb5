// Fairlock's types with the standard library's guards.
//
//   c++ -std=c++17 shared_mutex.cpp $(pkg-config --cflags --libs fairlock) && ./a.out

#include <chrono>
#include <iostream>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fairlock.hpp>

using namespace std::chrono_literals;

namespace {

fairlock::shared_mutex table_lock; // made at compile time
std::vector<std::string> table;

int failures = 0;

void expect(bool condition, const char *what) {
    if (!condition) {
        std::cerr << "not so: " << what << "\n";
        failures++;
    }
}

void share_and_exclude() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++) {
        threads.emplace_back([] {
            for (int round = 0; round < 2000; round++) {
                std::unique_lock alone(table_lock);
                table.emplace_back("entry");
            }
        });
        threads.emplace_back([] {
            for (int round = 0; round < 2000; round++) {
                std::shared_lock shared(table_lock);
                if (!table.empty()) {
                    expect(table.back() == "entry", "readers see whole entries");
                }
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    expect(table.size() == 4000, "no write is lost");
}

void run_out_of_time() {
    std::shared_lock reading(table_lock);
    std::thread([] {
        std::unique_lock in_vain(table_lock, 1ms);
        expect(!in_vain, "a reader keeps a writer out");
        expect(!table_lock.try_lock_until(std::chrono::system_clock::now() + 1ms), "any clock");
        expect(!table_lock.try_lock_for(-1h), "a time that is over");
        std::shared_lock too(table_lock, std::chrono::hours::max());
        expect(too.owns_lock(), "readers share, however long they would wait");
    }).join();
}

void refuse_misuse() {
    std::unique_lock writing(table_lock);
    try {
        table_lock.lock();
        expect(false, "a second lock by the same thread is refused");
    } catch (const std::system_error &error) {
        expect(error.code() == std::errc::resource_deadlock_would_occur, "and says why");
    }
    writing.unlock();
    try {
        table_lock.unlock();
        expect(false, "an unlock of what is not held is refused");
    } catch (const std::system_error &error) {
        expect(error.code() == std::errc::operation_not_permitted, "and says why");
    }
}

void lock_several() {
    fairlock::mutex first, second;
    {
        std::scoped_lock both(first, second);
        std::thread([&] { expect(!first.try_lock(), "held"); }).join();
    }
    std::scoped_lock again(second, first);
}

void lock_ranges() {
    fairlock::range_lock file;
    auto head = file.write(0, 4096);
    auto tail = file.read(4096, fairlock::to_end);
    expect(!file.try_read(0, 1).has_value(), "the head is taken");
    expect(!file.try_write_for(8192, 1, 1ms).has_value(), "the tail is shared");
    expect(file.try_read_for(8192, 1, 1ms).has_value(), "among readers");
    head.downgrade();
    expect(file.try_read(0, fairlock::to_end).has_value(), "now all is shared");
    fairlock::range_guard moved = std::move(head);
    expect(!head.owns_lock() && moved.owns_lock(), "guards move");
    moved.unlock();
    expect(file.try_write(0, 4096).has_value(), "unlocked early");
}

void wait_for_sources() {
    fairlock::poll poll;
    fairlock::counter requests;
    fairlock::event stop;
    poll.add(requests, 1, fairlock::readable, fairlock::trigger::level);
    poll.add(stop, 2, fairlock::readable, fairlock::trigger::edge);
    fairlock::ready ready[4];
    expect(poll.wait_for(ready, 0s) == 0, "nothing is ready yet");
    std::thread producer([&] {
        requests.add(3);
        stop.set(fairlock::readable);
    });
    bool stopped = false;
    std::uint64_t taken = 0;
    while (!stopped || taken < 3) {
        const std::size_t count = poll.wait(ready);
        for (std::size_t i = 0; i < count; i++) {
            stopped |= ready[i].token == 2;
            taken += ready[i].token == 1 ? requests.take().value_or(0) : 0;
        }
    }
    producer.join();
    expect(taken == 3, "every request is taken once");
    expect(poll.descriptor() >= 0, "other loops can wait for it");
    poll.remove(stop);
}

} // namespace

int main() {
    share_and_exclude();
    run_out_of_time();
    refuse_misuse();
    lock_several();
    lock_ranges();
    wait_for_sources();
    std::cout << failures << " failures\n";
    return failures == 0 ? 0 : 1;
}
