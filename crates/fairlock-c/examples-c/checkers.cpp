// For checkers of races: a correct program with the standard library's guards. With the argument `race` threads write
// a variable under a lock that they hold for reading.
//
//   c++ -std=c++17 -g -fsanitize=thread checkers.cpp $(pkg-config --cflags --libs fairlock) && ./a.out

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fairlock.hpp>

using namespace std::chrono_literals;

namespace {

class table {
public:
    std::string at(int key) {
        fairlock::upgrade_lock look(mutex_);
        if (const auto found = names_.find(key); found != names_.end()) {
            return found->second;
        }
        std::unique_lock change = std::move(look).upgrade();
        names_[key] = std::to_string(key);
        const std::shared_lock reading = fairlock::downgrade(std::move(change));
        return names_[key];
    }

    std::size_t size() {
        const std::shared_lock reading(mutex_);
        return names_.size();
    }

    bool forget(int key) {
        const std::unique_lock writing(mutex_, 1ms);
        return writing && names_.erase(key) != 0;
    }

private:
    fairlock::shared_mutex mutex_;
    std::map<int, std::string> names_;
};

template <class Work>
void in_threads(Work work) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back(work, i);
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

// Locks on the stack, at the same place in each round, and acquired in another order in each.
void be_short_lived() {
    for (int round = 0; round < 20; round++) {
        fairlock::mutex locks[2];
        int value = 0;
        in_threads([&](int) {
            const std::lock_guard one(locks[round % 2]);
            const std::lock_guard other(locks[1 - round % 2]);
            value++;
        });
    }
}

// With Fairlock's condition variable and the standard's.
template <class ConditionVariable>
void take_turns() {
    fairlock::mutex mutex;
    ConditionVariable changed;
    int turn = 0;
    in_threads([&](int self) {
        for (int round = 0; round < 50; round++) {
            std::unique_lock held(mutex);
            changed.wait(held, [&] { return turn % 3 == self; });
            turn++;
            changed.notify_all();
        }
    });
}

int value = 0; // not on the stack, which DRD leaves out

void race() {
    fairlock::shared_mutex mutex;
    in_threads([&](int) {
        for (int round = 0; round < 200; round++) {
            const std::shared_lock reading(mutex);
            value++; // other threads read, too
        }
    });
}

} // namespace

int main(int count, char **arguments) {
    if (count > 1 && arguments[1] == std::string("race")) {
        race();
        return 0;
    }
    table names;
    in_threads([&](int self) {
        for (int round = 0; round < 200; round++) {
            if (names.at(round % 10 + self) != std::to_string(round % 10 + self)) {
                std::cerr << "not so: the name is there\n";
            }
            if (round % 50 == 49) {
                names.forget(round % 10);
            }
        }
    });
    be_short_lived();
    take_turns<fairlock::condition_variable>();
    take_turns<std::condition_variable_any>();
    std::cout << names.size() << " names\n";
    return names.size() > 0 ? 0 : 1;
}
