// One small pool of sleeping threads for every verb that splits its work.
//
// Workers wait on a condition variable and never spin, so they do not fight with the threads of a BLAS.
// They are started when first needed and again in a forked child, which inherits none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>

namespace posh {

// Whether the work should stop, asked of the owner of the call (in Python: has Ctrl-C been pressed?).
using Poll = bool (*)();

// Lets long work be stopped: the calling thread polls now and then, the others see what it learned.
class Cancellation {
 public:
  explicit Cancellation(Poll poll);
  bool requested();

 private:
  Poll poll_;
  std::thread::id owner_;
  std::chrono::steady_clock::time_point next_poll_;
  std::atomic<bool> requested_{false};
};

// Calls work(0), …, work(n_tasks - 1), each once, on the calling thread and at most n_threads - 1 others,
// and returns when all are done. The first exception of a task is thrown again here; the tasks that had
// not begun by then, or when `cancellation` was requested, are left out.
void run_tasks(std::size_t n_tasks, std::size_t n_threads, Cancellation& cancellation,
               const std::function<void(std::size_t)>& work);

}  // namespace posh
