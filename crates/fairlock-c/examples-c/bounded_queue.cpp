// A bounded queue of a fairlock::mutex and two condition variables, in place of the standard's. In
// C++20 its consumers are std::jthreads, which stop at a request.
//
//   c++ -std=c++17 bounded_queue.cpp $(pkg-config --cflags --libs fairlock) && ./a.out

#include <cstddef>
#include <deque>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fairlock.hpp>

namespace {

template <class T>
class bounded_queue {
public:
    explicit bounded_queue(std::size_t capacity) : capacity_(capacity) {}

    void push(T item) {
        {
            std::unique_lock lock(mutex_);
            has_room_.wait(lock, [this] { return items_.size() < capacity_; });
            items_.push_back(std::move(item));
        }
        has_items_.notify_one();
    }

    // Consumers receive what is in the queue, and then nothing more.
    void close() {
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
        }
        has_items_.notify_all();
    }

    std::optional<T> pop() {
        std::unique_lock lock(mutex_);
        has_items_.wait(lock, [this] { return closed_ || !items_.empty(); });
        return take(lock);
    }

#ifdef __cpp_lib_jthread
    // As pop; also returns nothing if the queue is empty when a stop is requested.
    std::optional<T> pop(std::stop_token token) {
        std::unique_lock lock(mutex_);
        has_items_.wait(lock, std::move(token), [this] { return closed_ || !items_.empty(); });
        return take(lock);
    }
#endif

private:
    std::optional<T> take(std::unique_lock<fairlock::mutex> &lock) {
        if (items_.empty()) {
            return std::nullopt;
        }
        std::optional<T> item(std::move(items_.front()));
        items_.pop_front();
        lock.unlock();
        has_room_.notify_one();
        return item;
    }

    fairlock::mutex mutex_;
    fairlock::condition_variable has_items_, has_room_;
    std::deque<T> items_;
    const std::size_t capacity_;
    bool closed_ = false;
};

constexpr int producers = 3, consumers = 3, each = 2000;

} // namespace

int main() {
    bounded_queue<int> queue(4);
    std::vector<long> sums(consumers);
    std::vector<std::thread> threads;
    for (int i = 0; i < consumers; i++) {
        threads.emplace_back([&queue, &sum = sums[static_cast<std::size_t>(i)]] {
            while (const std::optional<int> item = queue.pop()) {
                sum += *item;
            }
        });
    }
    std::vector<std::thread> sending;
    for (int i = 0; i < producers; i++) {
        sending.emplace_back([&queue] {
            for (int item = 1; item <= each; item++) {
                queue.push(item);
            }
        });
    }
    for (auto &thread : sending) {
        thread.join();
    }
    queue.close();
    for (auto &thread : threads) {
        thread.join();
    }
    long sum = 0;
    for (const long part : sums) {
        sum += part;
    }
    const bool complete = sum == static_cast<long>(producers) * each * (each + 1) / 2;
    std::cout << (complete ? "every item arrived\n" : "items are missing\n");

#ifdef __cpp_lib_jthread
    bounded_queue<int> idle(1);
    {
        const std::jthread consumer([&idle](std::stop_token token) {
            while (idle.pop(token)) {
            }
        });
    } // requests a stop, and joins
    std::cout << "the idle consumer stopped\n";
#endif
    return complete ? 0 : 1;
}
