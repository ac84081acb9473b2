#include "machine/kernel_time.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

double gw_kernel_time_parse(const char *stat, long ticks) {
    unsigned long long irq, softirq;
    /* user nice system idle iowait irq softirq, the sums over all cores */
    if (ticks <= 0 || strncmp(stat, "cpu ", 4) != 0 ||
        sscanf(stat + 4, "%*u %*u %*u %*u %*u %llu %llu", &irq, &softirq) != 2)
        return NAN;
    /* None since the machine began: gVisor's, or a container's, that has no figure for it. */
    return softirq > 0 ? (double)(irq + softirq) / (double)ticks : NAN;
}

gw_kernel_time gw_kernel_time_now(void) {
    gw_kernel_time now = {NAN, NAN};
    char line[512];
    if (gw_file_first_line("/proc/stat", line, sizeof line))
        now.interrupts_s = gw_kernel_time_parse(line, sysconf(_SC_CLK_TCK));
    struct rusage own;
    if (getrusage(RUSAGE_SELF, &own) == 0)
        now.system_s = (double)own.ru_stime.tv_sec + 1e-6 * (double)own.ru_stime.tv_usec;
    return now;
}
