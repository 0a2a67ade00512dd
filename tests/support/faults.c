/* Faults: libc calls on files below a folder that fail, write in part, or end the process, from one of them on.
 *
 * Loaded with LD_PRELOAD; idle until a process calls `arm`. Every call below the folder is written to a log, a line
 * each: the tool's counter. `support/preloaded.py` is the other half.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ONCE, LASTING, SHORT, STOP, TORN };

static char folder[PATH_MAX];
static int armed, log_fd, error, kind;
static long at, calls;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* From now on: count calls below a folder, and let the one with this number (from 0) go wrong; none if it is -1. */
void arm(const char *path, int to, long number, int how, int with)
{
    snprintf(folder, sizeof folder, "%s/", path);
    log_fd = to, at = number, kind = how, error = with, calls = 0, armed = 1;
}

static void end(void) { kill(getpid(), SIGKILL); }

/* Whether a call on a path goes wrong. Those that ask for room fail for good once the disk is full. */
static int wrong(const char *call, const char *path)
{
    if (!armed || !path || strncmp(path, folder, strlen(folder)))
        return 0;
    char line[PATH_MAX + 32];
    int length = snprintf(line, sizeof line, "%s %s\n", call, path + strlen(folder));
    if (REAL(write)(log_fd, line, length) != length)
        end();
    long number = __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    if (at < 0 || number < at || (number > at && (kind == ONCE || (kind == SHORT && strcmp(call, "write")))))
        return 0;
    if (kind == STOP || (kind == TORN && strcmp(call, "write")))
        end();
    errno = error;
    return 1;
}

static int wrong_fd(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    if (!armed || fd == log_fd)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return wrong(call, path);
}

/* A write that goes wrong: all or nothing, unless it is the one that is cut in half. */
#define WRITE(name, parameters, all, half)                   \
    ssize_t name parameters                                  \
    {                                                        \
        if (!wrong_fd("write", fd))                          \
            return REAL(name) all;                           \
        if (calls - 1 == at && count > 1 && kind >= SHORT) { \
            ssize_t done = REAL(name) half;                  \
            if (kind == TORN)                                \
                end();                                       \
            return done;                                     \
        }                                                    \
        return -1;                                           \
    }

#define CALL(name, word, test, parameters, arguments) \
    int name parameters { return test(word, on) ? -1 : REAL(name) arguments; }

#define OPEN(name)                                                                    \
    int name(const char *path, int flags, ...)                                        \
    {                                                                                 \
        va_list rest;                                                                 \
        va_start(rest, flags);                                                        \
        mode_t mode = va_arg(rest, mode_t);                                           \
        va_end(rest);                                                                 \
        return wrong(flags & O_CREAT ? "create" : "open", path) ? -1 : REAL(name)(path, flags, mode); \
    }

OPEN(open)
OPEN(open64)
WRITE(write, (int fd, const void *data, size_t count), (fd, data, count), (fd, data, count / 2))
WRITE(pwrite, (int fd, const void *data, size_t count, off_t from), (fd, data, count, from), (fd, data, count / 2, from))
WRITE(pwrite64, (int fd, const void *data, size_t count, off64_t from), (fd, data, count, from),
      (fd, data, count / 2, from))
/* Nobody waits for the disk: what ends here is never the machine. */
int fsync(int on) { return wrong_fd("sync", on) ? -1 : 0; }
int fdatasync(int on) { return wrong_fd("sync", on) ? -1 : 0; }
CALL(ftruncate, "truncate", wrong_fd, (int on, off_t size), (on, size))
CALL(ftruncate64, "truncate", wrong_fd, (int on, off64_t size), (on, size))
CALL(rename, "rename", wrong, (const char *old, const char *on), (old, on))
CALL(unlink, "unlink", wrong, (const char *on), (on))
CALL(mkdir, "mkdir", wrong, (const char *on, mode_t mode), (on, mode))
CALL(rmdir, "rmdir", wrong, (const char *on), (on))

/* A close that fails has closed the file all the same. */
int close(int fd)
{
    int fails = wrong_fd("close", fd), number = errno, closed = REAL(close)(fd);
    errno = fails ? number : errno;
    return fails ? -1 : closed;
}
