// With -DNO_CLOCK it must not compile, and the message must say why.

#include <chrono>

#include <fairlock.hpp>

namespace {

// As std::chrono::local_t: time points have it in the place of a clock, but it cannot say what time it is.
struct no_clock {};

} // namespace

int main() {
#ifdef NO_CLOCK
    using clock = no_clock;
#else
    using clock = std::chrono::system_clock;
#endif
    fairlock::mutex mutex;
    const std::chrono::time_point<clock, std::chrono::seconds> deadline;
    return mutex.try_lock_until(deadline) ? 0 : 1;
}
