/* Records every change of files below POWER_LOSS_ROOT in the file POWER_LOSS_LOG. recording.py compiles this
 * library, preloads it into a program and reads the log.
 *
 * A record is a packed `struct head`, two paths relative to the root, and data. The kinds:
 *   m folder made        c file created      l second name       r renamed (first -> second)
 *   u name removed       d folder removed    w data written      t length set (offset = length)
 *   s file or folder synced                  k content as it is now: offset = length, data = CRC-32
 *   x sync that failed: the system has forgotten the changes, and a later sync does not write them
 *   ! marker of the program                  ? a call that the simulator does not understand
 *
 * One lock is held from before each call until its record is written: the order of the log is the order of
 * the calls. `k` records let the reader notice a write that was not recorded. Calls go to the kernel
 * directly. Of C's buffered files only `fwrite` is recorded, and flushed at once.
 *
 * `power_loss_fail` makes one call fail that would change a file below the root, or open one: see `fails`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct __attribute__((packed)) head {
    char kind;
    uint64_t inode;
    int64_t offset;
    uint32_t first, second, data;
};

static char root[PATH_MAX];
static size_t root_length;
static int log_file = -1;
static int kill_at = 0; /* the sync, counted from 1, before which this process is killed; 0 for never */
static struct {
    char kind;       /* of the calls: o open, w write, s sync, r rename, u remove, t set the length, m make a folder */
    int left;        /* calls of this kind until the one that fails */
    int error;       /* errno of the failure */
    int is_short;    /* whether the write writes half of its bytes instead */
    int lasts;       /* whether all later calls of this kind fail too */
    int happened;
    int is_paused;
} fault;
static int calls[128]; /* of each kind since `power_loss_fail` */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void record(char kind, uint64_t inode, int64_t offset, const char *first, const char *second,
                   const void *data, size_t size) {
    int error = errno;
    struct head head = {kind, inode, offset, strlen(first), strlen(second), size};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)first, head.first},
                            {(void *)second, head.second}, {(void *)data, size}};
    if (syscall(SYS_writev, log_file, parts, 4) != (long)(sizeof head + head.first + head.second + size)) {
        abort(); /* a log with a hole would prove nothing */
    }
    errno = error;
}

static int below(const char *path) {
    return log_file >= 0 && !strncmp(path, root, root_length) &&
           (path[root_length] == '/' || path[root_length] == 0);
}

static const char *inside(const char *path) { return path[root_length] ? path + root_length + 1 : ""; }

static int path_of(int file, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, out, PATH_MAX - 1);
    out[length < 0 ? 0 : length] = 0;
    return length > 0;
}

/* Whether a call of this kind, of a file below the root, is to fail; errno says how. */
static int fails(char kind) {
    if (fault.is_paused) return 0;
    pthread_mutex_lock(&lock);
    calls[(int)kind]++;
    int first = fault.kind == kind && !fault.happened && --fault.left == 0;
    int yes = first || (fault.kind == kind && fault.happened && fault.lasts);
    fault.happened |= first;
    pthread_mutex_unlock(&lock);
    if (yes) errno = fault.error;
    return yes;
}

/* Whether an open file or folder is below the root. */
static int watched(int file, struct stat *status) {
    char path[PATH_MAX];
    int error = errno;
    int yes = log_file >= 0 && path_of(file, path) && below(path) && !fstat(file, status);
    errno = error;
    return yes;
}

/* Whether a name, which need not exist, is below the root; `out` is its absolute path. */
static int resolved(int folder, const char *path, char *out) {
    char joined[2 * PATH_MAX], parent[PATH_MAX], base[PATH_MAX] = "";
    int error = errno, yes = 0;
    if (log_file < 0 || !path) return 0;
    if (path[0] != '/' && !(folder == AT_FDCWD ? getcwd(base, sizeof base) != NULL : path_of(folder, base))) {
        return 0;
    }
    snprintf(joined, sizeof joined, "%s/%s", base, path);
    for (size_t n = strlen(joined); n > 1 && joined[n - 1] == '/'; n--) joined[n - 1] = 0;
    char *name = strrchr(joined, '/');
    *name++ = 0;
    if (realpath(*joined ? joined : "/", parent)) {
        yes = snprintf(out, PATH_MAX, "%s/%s", parent, name) < PATH_MAX && below(out);
    }
    errno = error;
    return yes;
}

static uint32_t crc32_of(uint32_t crc, const unsigned char *data, ssize_t size) {
    static uint32_t table[256];
    for (uint32_t i = 1; !table[255] && i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
        table[i] = value;
    }
    for (crc = ~crc; size > 0; size--) crc = table[(crc ^ *data++) & 255] ^ (crc >> 8);
    return ~crc;
}

static int readable(const char *path) {
    return syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

/* Record the content of a regular file that is open for reading. */
static void record_content(int file) {
    static unsigned char block[1 << 16];
    struct stat status;
    uint32_t crc = 0;
    int64_t at = 0;
    ssize_t n;
    if (file < 0 || fstat(file, &status) || !S_ISREG(status.st_mode)) return;
    for (; (n = pread(file, block, sizeof block, at)) > 0; at += n) crc = crc32_of(crc, block, n);
    if (n == 0) record('k', status.st_ino, at, "", "", &crc, sizeof crc);
}

static void record_content_at(const char *path) {
    int error = errno;
    int file = readable(path);
    record_content(file);
    if (file >= 0) syscall(SYS_close, file);
    errno = error;
}

void power_loss_stop(void) {
    if (log_file >= 0) syscall(SYS_close, log_file);
    log_file = -1;
}

/* Record what happens below `folder` from now on, in a new log. */
void power_loss_start(const char *folder, const char *log) {
    struct stat status;
    power_loss_stop();
    if (!realpath(folder, root) || stat(root, &status)) abort();
    root_length = strlen(root);
    log_file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    record('m', status.st_ino, 0, "", "", NULL, 0);
}

__attribute__((constructor)) static void start(void) {
    const char *folder = getenv("POWER_LOSS_ROOT"), *log = getenv("POWER_LOSS_LOG");
    unsetenv("LD_PRELOAD"); /* programs that this one starts are not recorded */
    if (folder && log) power_loss_start(folder, log);
}

/* Let the call of a kind with this number fail, counted from 1; 0 for none. */
void power_loss_fail(char kind, int number, int error, int is_short, int lasts) {
    memset(calls, 0, sizeof calls);
    fault.happened = 0;
    fault.left = number;
    fault.error = error;
    fault.is_short = is_short;
    fault.lasts = lasts;
    fault.kind = number ? kind : 0;
}

void power_loss_pause_faults(int yes) { fault.is_paused = yes; }

int power_loss_calls(char kind) { return calls[(int)kind]; }

int power_loss_has_failed(void) { return fault.happened; }

void power_loss_mark(const char *text) {
    pthread_mutex_lock(&lock);
    if (log_file >= 0) record('!', 0, 0, text, "", NULL, 0);
    pthread_mutex_unlock(&lock);
}

void power_loss_kill_at_sync(int number) { kill_at = number; }

#define LOCKED(type, result, call, ...)  \
    pthread_mutex_lock(&lock);           \
    type result = call;                  \
    __VA_ARGS__;                         \
    pthread_mutex_unlock(&lock);         \
    return result

/* Opening and closing ------------------------------------------------------------------------------ */

static int opened(int folder, const char *path, int flags, mode_t mode) {
    char name[PATH_MAX];
    struct stat status;
    if (!resolved(folder, path, name)) return syscall(SYS_openat, folder, path, flags, mode);
    if (fails('o')) return -1;
    pthread_mutex_lock(&lock);
    int error = errno, existed = !lstat(name, &status);
    errno = error;
    int file = syscall(SYS_openat, folder, path, flags, mode);
    if (file >= 0 && flags & (O_CREAT | O_TRUNC) && !fstat(file, &status)) {
        if (!existed) record('c', status.st_ino, 0, inside(name), "", NULL, 0);
        else if (flags & O_TRUNC) record('t', status.st_ino, 0, "", "", NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return file;
}

#define MODE(flags, mode)                              \
    mode_t mode = 0;                                   \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {           \
        va_list arguments;                             \
        va_start(arguments, flags);                    \
        mode = va_arg(arguments, mode_t);              \
        va_end(arguments);                             \
    }
int open(const char *path, int flags, ...) { MODE(flags, mode) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, mode) return opened(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags, mode) return opened(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags, mode) return opened(at, path, flags, mode); }
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char *path, int flags) { return opened(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return opened(at, path, flags, 0); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int file) {
    struct stat status;
    char link[64];
    if (watched(file, &status) && S_ISREG(status.st_mode)) {
        pthread_mutex_lock(&lock);
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        int other = (fcntl(file, F_GETFL) & O_ACCMODE) == O_WRONLY
                        ? syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC) : file;
        record_content(other);
        if (other >= 0 && other != file) syscall(SYS_close, other);
        pthread_mutex_unlock(&lock);
    }
    return syscall(SYS_close, file);
}

/* Data --------------------------------------------------------------------------------------------- */

static void record_parts(uint64_t inode, int64_t at, const struct iovec *parts, int count, ssize_t left) {
    for (int i = 0; i < count && left > 0; i++) {
        ssize_t size = left < (ssize_t)parts[i].iov_len ? left : (ssize_t)parts[i].iov_len;
        record('w', inode, at, "", "", parts[i].iov_base, size);
        at += size;
        left -= size;
    }
}

static ssize_t written(int file, const struct iovec *parts, int count, int64_t offset) {
    struct stat status;
    int positioned = offset >= 0;
#define WRITE (positioned ? syscall(SYS_pwritev, file, parts, count, offset, 0L) \
                          : syscall(SYS_writev, file, parts, count))
    if (!watched(file, &status)) return WRITE;
    struct iovec half = {parts[0].iov_base, parts[0].iov_len / 2};
    int is_first = !fault.happened;
    if (fails('w')) {
        if (!(fault.is_short && is_first && half.iov_len)) return -1;
        parts = &half;
        count = 1;
    }
    LOCKED(ssize_t, n, WRITE, if (n > 0) record_parts(
        status.st_ino, positioned ? offset : lseek(file, 0, SEEK_CUR) - n, parts, count, n));
}

#define ONE(data, size) (&(struct iovec){(void *)(data), size}), 1
ssize_t write(int file, const void *data, size_t size) { return written(file, ONE(data, size), -1); }
ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return written(file, ONE(data, size), at); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { return written(file, ONE(data, size), at); }
ssize_t writev(int file, const struct iovec *parts, int count) { return written(file, parts, count, -1); }
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) { return written(file, parts, count, at); }
ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) { return written(file, parts, count, at); }
ssize_t pwritev2(int file, const struct iovec *parts, int count, off_t at, int flags) {
    return flags ? (errno = EOPNOTSUPP, -1) : written(file, parts, count, at);
}
ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t at, int flags) {
    return pwritev2(file, parts, count, at, flags);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    size_t (*real)(const void *, size_t, size_t, FILE *) = dlsym(RTLD_NEXT, "fwrite");
    struct stat status;
    if (!watched(fileno(stream), &status)) return real(data, size, count, stream);
    if (fails('w')) return 0;
    pthread_mutex_lock(&lock);
    fflush(stream);
    int64_t at = ftello(stream);
    size_t n = real(data, size, count, stream);
    fflush(stream);
    if (n) record('w', status.st_ino, at, "", "", data, n * size);
    pthread_mutex_unlock(&lock);
    return n;
}

/* What the kernel copied into a file: read back, because the program never had it. */
static void record_copied(int file, uint64_t inode, int64_t at, ssize_t size) {
    char link[64];
    char *data = malloc(size);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int source = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    if (!data || pread(source, data, size, at) != size) abort();
    syscall(SYS_close, source);
    record('w', inode, at, "", "", data, size);
    free(data);
}

ssize_t copy_file_range(int from, off64_t *at_from, int to, off64_t *at_to, size_t size, unsigned flags) {
    struct stat status;
#define COPY syscall(SYS_copy_file_range, from, at_from, to, at_to, size, flags)
    if (!watched(to, &status)) return COPY;
    if (fails('w')) return -1;
    LOCKED(ssize_t, n, COPY, if (n > 0) record_copied(
        to, status.st_ino, (at_to ? *at_to : lseek(to, 0, SEEK_CUR)) - n, n));
}

ssize_t sendfile(int to, int from, off_t *at_from, size_t size) {
    struct stat status;
#define SEND syscall(SYS_sendfile, to, from, at_from, size)
    if (!watched(to, &status)) return SEND;
    if (fails('w')) return -1;
    LOCKED(ssize_t, n, SEND, if (n > 0) record_copied(to, status.st_ino, lseek(to, 0, SEEK_CUR) - n, n));
}
ssize_t sendfile64(int to, int from, off64_t *at_from, size_t size) { return sendfile(to, from, at_from, size); }

/* Lengths and syncing ------------------------------------------------------------------------------ */

static void record_length(int file) {
    struct stat status;
    if (!fstat(file, &status)) record('t', status.st_ino, status.st_size, "", "", NULL, 0);
}

int ftruncate(int file, off_t size) {
    struct stat status;
    if (!watched(file, &status)) return syscall(SYS_ftruncate, file, size);
    if (fails('t')) return -1;
    LOCKED(int, failed, syscall(SYS_ftruncate, file, size), if (!failed) record_length(file));
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

int truncate(const char *path, off_t size) {
    int file = opened(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
    if (file < 0) return -1;
    int failed = ftruncate(file, size), error = errno;
    syscall(SYS_close, file);
    errno = error;
    return failed;
}
int truncate64(const char *path, off64_t size) { return truncate(path, size); }

int fallocate(int file, int mode, off_t at, off_t size) {
    struct stat status;
    if (!watched(file, &status)) return syscall(SYS_fallocate, file, mode, at, size);
    if (fails('t')) return -1;
    LOCKED(int, failed, syscall(SYS_fallocate, file, mode, at, size), if (!failed) record_length(file));
}
int fallocate64(int file, int mode, off64_t at, off64_t size) { return fallocate(file, mode, at, size); }
int posix_fallocate(int file, off_t at, off_t size) { return fallocate(file, 0, at, size) ? errno : 0; }
int posix_fallocate64(int file, off64_t at, off64_t size) { return posix_fallocate(file, at, size); }

static int synced(long number, int file) {
    struct stat status;
    if (!watched(file, &status)) return syscall(number, file);
    if (kill_at > 0 && --kill_at == 0) syscall(SYS_kill, getpid(), SIGKILL);
    if (fails('s')) {
        record('x', status.st_ino, 0, "", "", NULL, 0);
        return -1;
    }
    LOCKED(int, failed, syscall(number, file), if (!failed) record('s', status.st_ino, 0, "", "", NULL, 0));
}
int fsync(int file) { return synced(SYS_fsync, file); }
int fdatasync(int file) { return synced(SYS_fdatasync, file); }
/* sync, syncfs, sync_file_range and msync are not recorded: the simulator assumes that they promise nothing. */

/* Names -------------------------------------------------------------------------------------------- */

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char one[PATH_MAX] = "", two[PATH_MAX] = "";
    struct stat status;
    int ours = resolved(from_at, from, one) + resolved(to_at, to, two);
#define RENAME syscall(SYS_renameat2, from_at, from, to_at, to, flags)
    if (!ours) return RENAME;
    if (fails('r')) return -1;
    pthread_mutex_lock(&lock);
    char kind = ours == 2 && !(flags & ~RENAME_NOREPLACE) ? 'r' : '?'; /* into or out of the root, or swapped */
    record_content_at(one);
    int failed = RENAME;
    if (!failed && !lstat(two, &status)) {
        record(kind, status.st_ino, 0, below(one) ? inside(one) : "", below(two) ? inside(two) : "", NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return failed;
}
int renameat(int from_at, const char *from, int to_at, const char *to) { return renameat2(from_at, from, to_at, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int at, const char *path, int flags) {
    char name[PATH_MAX];
    if (!resolved(at, path, name)) return syscall(SYS_unlinkat, at, path, flags);
    if (fails('u')) return -1;
    pthread_mutex_lock(&lock);
    if (!(flags & AT_REMOVEDIR)) record_content_at(name);
    int failed = syscall(SYS_unlinkat, at, path, flags);
    if (!failed) record(flags & AT_REMOVEDIR ? 'd' : 'u', 0, 0, inside(name), "", NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int at, const char *path, mode_t mode) {
    char name[PATH_MAX];
    struct stat status;
    if (!resolved(at, path, name)) return syscall(SYS_mkdirat, at, path, mode);
    if (fails('m')) return -1;
    LOCKED(int, failed, syscall(SYS_mkdirat, at, path, mode),
           if (!failed && !lstat(name, &status)) record('m', status.st_ino, 0, inside(name), "", NULL, 0));
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    char name[PATH_MAX];
    struct stat status;
    if (!resolved(to_at, to, name)) return syscall(SYS_linkat, from_at, from, to_at, to, flags);
    LOCKED(int, failed, syscall(SYS_linkat, from_at, from, to_at, to, flags),
           if (!failed && !lstat(name, &status)) record('l', status.st_ino, 0, inside(name), "", NULL, 0));
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int symlinkat(const char *target, int at, const char *path) {
    char name[PATH_MAX];
    if (resolved(at, path, name)) record('?', 0, 0, inside(name), "symlink", NULL, 0);
    return syscall(SYS_symlinkat, target, at, path);
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }
