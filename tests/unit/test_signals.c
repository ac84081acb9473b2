/* Signals are noted, and interrupt no thread that computes. */
#include "watch/signals.h"

#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3 };

static int blocked(void) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    return sigismember(&mask, SIGTERM) && sigismember(&mask, SIGINT);
}

static void await_signal(void) {
    const struct timespec moment = {.tv_nsec = 1000000};
    while (!gw_signals_seen())
        nanosleep(&moment, NULL);
}

/* The kernel must not write the handler's frame to where oneDNN has set the stack pointer. */
static void taken_elsewhere(void **state) {
    assert_false(blocked());
    assert_int_equal(gw_signals_watch(), GW_OK);
    assert_int_equal(gw_signals_seen(), 0);
    int in_all = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : in_all)
    in_all += blocked();
    assert_int_equal(in_all, THREADS);
    kill(getpid(), SIGTERM);
    await_signal();
    assert_int_equal(gw_signals_seen(), SIGTERM);
    assert_string_equal(gw_signals_name(SIGTERM), "SIGTERM");
    kill(getpid(), SIGTERM); /* does no harm */
}

/* In a child, because the signal kills it; after SIGTERM from the test before. */
static void second_interrupt(void **state) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (gw_signals_watch() != GW_OK)
            _exit(1);
        kill(getpid(), SIGINT);
        for (;;)
            pause();
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taken_elsewhere),
        cmocka_unit_test(second_interrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
