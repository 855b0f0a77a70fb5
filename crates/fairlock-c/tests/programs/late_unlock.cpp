// Guards of threads, which are destroyed when the thread ends, in both orders with the thread's first
// lock; and those of the program.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include <fairlock.hpp>

namespace {

fairlock::shared_mutex lock;
thread_local std::shared_lock<fairlock::shared_mutex> first, second;

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "%s\n", what);
    std::_Exit(1);
}

void must_be_free(const char *what) {
    std::thread([what] {
        if (!lock.try_lock_for(std::chrono::seconds(10))) {
            fail(what);
        }
        lock.unlock();
    }).join();
}

void warm() {
    for (int i = 0; i < 300; i++) {
        std::shared_lock reading(lock);
    }
}

struct last {
    ~last() { must_be_free("the program's guard has not unlocked"); }
} checked_last; // Made before the guard below, so destroyed after it.
std::shared_lock<fairlock::shared_mutex> last_guard;

} // namespace

int main() {
    for (int times = 0; times < 50; times++) {
        std::thread(warm).join();
        // The guard exists before the thread's first lock, so it outlives what the lock knows of it.
        std::thread([] {
            if (first.owns_lock()) {
                fail("a new guard owns nothing");
            }
            first = std::shared_lock(lock);
        }).join();
        must_be_free("a guard that is older than its thread's first lock has not unlocked");
        warm();
        std::thread([] {
            warm();
            second = std::shared_lock(lock);
            first = std::shared_lock(lock, std::try_to_lock);
        }).join();
        must_be_free("a guard that is younger than its thread's first lock has not unlocked");
    }
    warm();
    last_guard = std::shared_lock(lock);
}
