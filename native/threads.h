// One small pool of sleeping threads for all functions that divide their work.
//
// Workers wait on a condition variable and never spin, so they do not compete with the threads of BLAS.
// The pool starts them when they are first needed. A forked child inherits no threads and starts its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>

namespace posh {

// Asks the caller whether the work should stop (in Python: was Ctrl-C pressed?).
using Poll = bool (*)();

// Stops long work early. Only the calling thread polls, now and then; the other threads read its last result.
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
// and returns when all are done. After a task throws an exception, or after `cancellation` is requested, no further
// task begins. run_tasks throws the first exception of a task again.
void run_tasks(std::size_t n_tasks, std::size_t n_threads, Cancellation& cancellation,
               const std::function<void(std::size_t)>& work);

}  // namespace posh
