#include "cli/offspring.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static sigset_t heeded, before;

gw_err gw_offspring_open(void) {
    sigemptyset(&heeded);
    sigaddset(&heeded, SIGTERM);
    sigaddset(&heeded, SIGINT);
    sigaddset(&heeded, SIGCHLD);
    signal(SIGCHLD, SIG_DFL); /* who inherits that it is ignored never hears of an end */
    if (sigprocmask(SIG_BLOCK, &heeded, &before) != 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return gw_fail(GW_ERR_INTERNAL, "supervise: %s", strerror(errno));
    return GW_OK;
}

/* In the child. A launcher in the background that reads from a terminal would be stopped. */
static void become(char *const argv[], pid_t parent, int tell) {
    int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && getppid() == parent)
        execvp(argv[0], argv);
    int why = errno;
    if (write(tell, &why, sizeof why) < 0)
        _exit(126);
    _exit(127);
}

gw_err gw_offspring_start(char *const argv[], pid_t *pid) {
    int tell[2], why = 0;
    pid_t parent = getpid();
    if (pipe2(tell, O_CLOEXEC) != 0)
        return gw_fail(GW_ERR_IO, "supervise: %s", strerror(errno));
    *pid = fork();
    if (*pid == 0)
        become(argv, parent, tell[1]);
    if (*pid < 0)
        why = errno;
    close(tell[1]);
    /* Nothing comes: the exec has closed it. */
    if (*pid > 0 && read(tell[0], &why, sizeof why) > 0)
        waitpid(*pid, NULL, 0);
    close(tell[0]);
    return why ? gw_fail(GW_ERR_INPUT, "supervise: cannot start %s: %s", argv[0], strerror(why))
               : GW_OK;
}

/* Reaps whatever has ended: ours, and what became ours. */
static bool reap(pid_t pid, int *status) {
    bool ours = false;
    for (int s;;) {
        pid_t done = waitpid(-1, &s, WNOHANG);
        if (done <= 0)
            return ours;
        if (done == pid) {
            ours = true;
            *status = s;
        }
    }
}

gw_offspring_event gw_offspring_wait(pid_t pid, double seconds) {
    gw_offspring_event event = {0};
    struct timespec now, left = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    double until = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec + seconds;
    for (;;) {
        event.ended = reap(pid, &event.status);
        if (event.ended)
            return event;
        clock_gettime(CLOCK_MONOTONIC, &now);
        double rest = until - (double)now.tv_sec - 1e-9 * (double)now.tv_nsec;
        if (seconds >= 0 && rest <= 0)
            return event;
        left = (struct timespec){(time_t)rest, (long)(1e9 * (rest - floor(rest)))};
        int sig = seconds < 0 ? sigwaitinfo(&heeded, NULL) : sigtimedwait(&heeded, NULL, &left);
        if (sig == SIGTERM || sig == SIGINT) {
            event.signal = sig;
            return event;
        }
    }
}

/* Of a line of /proc/PID/stat: "PID (NAME) STATE PARENT ..", where NAME may hold anything. */
static pid_t parent_of(const char *pid) {
    char path[300], line[512];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *in = fopen(path, "r");
    if (!in)
        return -1;
    const char *name_end = fgets(line, sizeof line, in) ? strrchr(line, ')') : NULL;
    long parent = name_end && strlen(name_end) > 4 ? strtol(name_end + 4, NULL, 10) : -1;
    fclose(in);
    return (pid_t)parent;
}

static void signal_children(int sig) {
    pid_t self = getpid();
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && (entry = readdir(all)) != NULL;) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0 && parent_of(entry->d_name) == self)
            kill(pid, sig);
    }
    if (all)
        closedir(all);
}

void gw_offspring_hand_on(int sig, double seconds) {
    const struct timespec slice = {.tv_nsec = 20 * 1000 * 1000};
    signal_children(sig);
    for (double waited_s = 0; waited_s < seconds; waited_s += 1e-9 * (double)slice.tv_nsec) {
        int status;
        while (waitpid(-1, &status, WNOHANG) > 0)
            continue;
        if (waitpid(-1, &status, WNOHANG) < 0) /* there are none */
            return;
        nanosleep(&slice, NULL);
    }
}

/* Who dies leaves its children to us: so until there are none. */
void gw_offspring_end(pid_t pid) {
    kill(-pid, SIGKILL);
    do
        signal_children(SIGKILL);
    while (waitpid(-1, NULL, 0) >= 0 || errno == EINTR);
}
