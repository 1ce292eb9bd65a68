/* Passes of a daemon's main loop at a pace, while processes wait for the processors; and batches of
packets sent whole; and packet sockets with large buffers.

ovs-vswitchd's main loop polls every port, then looks at every port, and so on. A packet that comes
in ends the poll, whatever it costs to look at all the others. Loaded before the C library, this
poll() lets passes begin at most once in HOSENET_PASS_US microseconds on average, BURST of them at
once, where this thread had to wait for a processor for more than a WAITED_PART of its recent time:
a switch with little to do answers as soon as ever, a busy one takes more packets a pass. It begins
when the file HOSENET_PASS_FILE is there, as bridges and ports are made in many passes; without
that name never.

sendmmsg() continues after a packet that a full queue refuses. Open vSwitch gives up there, and drops
the rest of what it sends to that port together: a flood into one tenant's full queue took the packets
of others with it.

socket() gives packet sockets their buffers, HOSENET_SEND_BYTES and HOSENET_RECEIVE_BYTES: the
kernel's defaults, 208 kB, cannot be changed from a container.

No headers, so that a compiler is all it needs; x86-64 and arm64 Linux have these types alike. */

struct timespec { long s, ns; };
struct pollfd;

extern int ppoll(struct pollfd *fds, unsigned long n, const struct timespec *timeout, const void *);
extern int clock_gettime(int clock, struct timespec *now);
extern int nanosleep(const struct timespec *time, struct timespec *left);
extern int access(const char *path, int mode);
extern int open(const char *path, int flags, ...);
extern long pread(int file, void *buffer, unsigned long size, long offset);
extern char *getenv(const char *name);
extern long atol(const char *text);
extern long syscall(long number, ...);
extern int setsockopt(int socket, int level, int name, const void *value, unsigned size);
extern int *__errno_location(void);

#ifdef __x86_64__
enum { SENDMMSG = 307, SOCKET = 41 };
#else
enum { SENDMMSG = 269, SOCKET = 198 };
#endif
enum { PACKET = 17, SOCKET_LEVEL = 1, SEND_BUFFER_FORCED = 32, RECEIVE_BUFFER_FORCED = 33 };
enum { QUEUE_FULL = 105, MMSGHDR_BYTES = 64 };

enum { MONOTONIC = 1, BURST = 32, MAIN_LOOP_FDS = 64, READ_ONLY_CLOSED_ON_EXEC = 02000000 };
enum { RECENT_NS = 250000000, WAITED_PART = 10 };

static long pace_ns;
static long due_ns; /* when the next pass would begin if all were evenly spaced */

/* Nanoseconds that this thread has been ready to run without a processor; -1: not known. */
static long waited_ns(void)
{
    static int file;
    char text[64], *at = text;
    long size;

    if (file == 0)
        file = open("/proc/thread-self/schedstat", READ_ONLY_CLOSED_ON_EXEC);
    if (file < 0 || (size = pread(file, text, sizeof text - 1, 0)) <= 0)
        return -1;
    text[size] = 0;
    if (atol(at) == 0)
        return -1;
    while (*at && *at != ' ')
        at++;
    return atol(at);
}

/* True where processes wait for the processors, or nobody knows. */
static int contended(long now_ns)
{
    static long since_ns, waited_before_ns;
    static int found = 1;
    long waited;

    if (now_ns - since_ns >= RECENT_NS) {
        waited = waited_ns();
        found = since_ns == 0 || waited < 0
            || (waited - waited_before_ns) * WAITED_PART > now_ns - since_ns;
        since_ns = now_ns;
        waited_before_ns = waited;
    }
    return found;
}

static void wait_for_turn(void)
{
    struct timespec now, pause = { 0, 0 };
    long now_ns, early_ns;

    clock_gettime(MONOTONIC, &now);
    now_ns = now.s * 1000000000l + now.ns;
    if (due_ns < now_ns || !contended(now_ns))
        due_ns = now_ns;
    early_ns = due_ns - now_ns - BURST * pace_ns;
    due_ns += pace_ns;
    if (early_ns > 0) {
        pause.s = early_ns / 1000000000l;
        pause.ns = early_ns % 1000000000l;
        nanosleep(&pause, 0);
    }
}

int poll(struct pollfd *fds, unsigned long n, int timeout_ms)
{
    struct timespec timeout = { timeout_ms / 1000, timeout_ms % 1000 * 1000000l };

    /* Other threads wait for a few things, the main loop for all ports. */
    if (n >= MAIN_LOOP_FDS) {
        char *begun = pace_ns == 0 ? getenv("HOSENET_PASS_FILE") : 0;
        if (begun && access(begun, 0) == 0)
            pace_ns = atol(getenv("HOSENET_PASS_US")) * 1000;
        if (pace_ns > 0)
            wait_for_turn();
    }
    return ppoll(fds, n, timeout_ms < 0 ? 0 : &timeout, 0);
}

int sendmmsg(int socket, char *messages, unsigned n, int flags)
{
    unsigned done = 0;
    long sent;

    while (done < n) {
        sent = syscall(SENDMMSG, socket, messages + done * MMSGHDR_BYTES, n - done, flags);
        if (sent > 0)
            done += sent;
        else if (sent < 0 && *__errno_location() == QUEUE_FULL)
            done++; /* the queue has counted it */
        else
            return done > 0 ? (int)done : (int)sent;
    }
    return n;
}

static void set_buffer(int socket, int name, const char *variable)
{
    char *text = getenv(variable);
    int bytes = text ? atol(text) / 2 : 0; /* the kernel doubles what is set */

    if (bytes > 0)
        setsockopt(socket, SOCKET_LEVEL, name, &bytes, sizeof bytes);
}

int socket(int domain, int type, int protocol)
{
    int made = (int)syscall(SOCKET, domain, type, protocol);

    if (made >= 0 && domain == PACKET) {
        set_buffer(made, SEND_BUFFER_FORCED, "HOSENET_SEND_BYTES");
        set_buffer(made, RECEIVE_BUFFER_FORCED, "HOSENET_RECEIVE_BYTES");
    }
    return made;
}
