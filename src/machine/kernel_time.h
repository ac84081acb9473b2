/** Processor time that the kernel spends on the network, as /proc/stat and the kernel's accounts of
 * a process have it. A kernel without CONFIG_IRQ_TIME_ACCOUNTING only samples it, 100 to 1000 times
 * a second and core, and never sees hard interrupts: their time is whoever's they interrupt. */
#ifndef GW_MACHINE_KERNEL_TIME_H
#define GW_MACHINE_KERNEL_TIME_H

typedef struct gw_kernel_time {
    double interrupts_s; /* in interrupts and what they left to do (softirqs, ksoftirqd), of all
                            cores since the machine began; NaN: this system does not count it */
    double system_s;     /* in system calls and faults of this process; NaN: not known */
} gw_kernel_time;

gw_kernel_time gw_kernel_time_now(void);

/** Seconds in interrupts from the text of /proc/stat, of `ticks` a second; NaN: not counted there.
 */
double gw_kernel_time_parse(const char *stat, long ticks);

#endif
