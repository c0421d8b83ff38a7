// The pool. A call of run_tasks adds one ticket per helper that it wants. A sleeping worker takes a ticket and helps
// with the tasks of that call.
#include "threads.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

namespace posh {
namespace {

constexpr std::chrono::milliseconds poll_interval{50};

struct Job {
  std::size_t n_tasks;
  const std::function<void(std::size_t)>& work;
  Cancellation& cancellation;
  std::atomic<std::size_t> next_task{0};
  std::exception_ptr error;        // guarded by the pool's mutex
  std::size_t active_helpers = 0;  // guarded by the pool's mutex
};

class Pool {
 public:
  void run(Job& job, std::size_t n_helpers) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (; n_workers_ < n_helpers; ++n_workers_) std::thread([this] { serve(); }).detach();
      tickets_.insert(tickets_.end(), n_helpers, &job);
    }
    ticket_left_.notify_all();
    work_on(job);
    std::unique_lock<std::mutex> lock(mutex_);
    tickets_.erase(std::remove(tickets_.begin(), tickets_.end(), &job), tickets_.end());
    while (job.active_helpers) {
      helper_done_.wait_for(lock, poll_interval);
      lock.unlock();
      job.cancellation.requested();  // only the calling thread can poll, so it keeps polling when it has no task left
      lock.lock();
    }
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ticket_left_.wait(lock, [this] { return !tickets_.empty(); });
      Job& job = *tickets_.front();
      tickets_.pop_front();
      ++job.active_helpers;
      lock.unlock();
      work_on(job);
      lock.lock();
      --job.active_helpers;
      helper_done_.notify_all();
    }
  }

  void work_on(Job& job) {
    try {
      while (!job.cancellation.requested()) {
        const std::size_t task = job.next_task++;
        if (task >= job.n_tasks) break;
        job.work(task);
      }
    } catch (...) {
      job.next_task = job.n_tasks;
      std::lock_guard<std::mutex> lock(mutex_);
      if (!job.error) job.error = std::current_exception();
    }
  }

  std::mutex mutex_;
  std::condition_variable ticket_left_, helper_done_;
  std::deque<Job*> tickets_;
  std::size_t n_workers_ = 0;
};

// The pool is never destroyed, because its detached workers may outlive main.
std::atomic<Pool*> instance{nullptr};

// A forked child has no workers, and one of the parent's workers may have held the mutex during the fork.
// So the child abandons the pool and creates a new one when it needs one.
[[maybe_unused]] const int forgotten_after_fork = pthread_atfork(nullptr, nullptr, [] { instance = nullptr; });

// Creates the pool without a lock: a fork could copy a lock while it is held.
Pool& pool() {
  Pool* current = instance;
  if (current) return *current;
  Pool* created = new Pool;
  if (instance.compare_exchange_strong(current, created)) return *created;
  delete created;
  return *current;
}

}  // namespace

Cancellation::Cancellation(Poll poll)
    : poll_(poll), owner_(std::this_thread::get_id()), next_poll_(std::chrono::steady_clock::now() + poll_interval) {}

bool Cancellation::requested() {
  if (poll_ && !requested_ && std::this_thread::get_id() == owner_) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_poll_) {
      requested_ = poll_();
      next_poll_ = now + poll_interval;
    }
  }
  return requested_;
}

void run_tasks(std::size_t n_tasks, std::size_t n_threads, Cancellation& cancellation,
               const std::function<void(std::size_t)>& work) {
  const std::size_t n_helpers = std::min(n_threads, std::max<std::size_t>(n_tasks, 1)) - 1;
  if (n_helpers == 0) {  // a small search takes less time than the lock of the pool
    for (std::size_t task = 0; task < n_tasks && !cancellation.requested(); ++task) work(task);
    return;
  }
  Job job{n_tasks, work, cancellation, {}, {}, 0};
  pool().run(job, n_helpers);
}

}  // namespace posh
