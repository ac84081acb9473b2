/** Folders that this process holds by their descriptors. Someone may remove or rename such a folder
 *  and make another with its name. A write to a path below the folder then still goes to the held
 *  folder, or fails. Paths not below a held folder are the system's as usual. Any thread. */
#ifndef GW_BASE_HOLD_H
#define GW_BASE_HOLD_H

#include "base/err.h"

#define GW_HOLD_LOCK ".lock"

typedef struct gw_hold gw_hold;

/** Hold `dir`, open as `fd`, with its GW_HOLD_LOCK, open as `lock`, until gw_hold_end, which closes
 *  both. On an error the caller still owns them. */
gw_err gw_hold_begin(gw_hold **out, const char *dir, int fd, int lock);

/** h may be NULL. */
void gw_hold_end(gw_hold *h);

/** Check the held folder that `path` is or lies in. GW_ERR_LOST: its name now means another folder
 *  or none, or its lock is gone, so others may have come. */
gw_err gw_hold_check(const char *path);

/** Open folder `dir`; the caller owns *fd. A folder below a held one is opened from there, through
 *  no symbolic link, after gw_hold_check. GW_ERR_INPUT with errno: there is none. GW_ERR_LOST. */
gw_err gw_hold_open(const char *dir, int *fd);

/* These functions open DIR by gw_hold_open, and fail with GW_ERR_LOST or GW_ERR_IO. */

/** Make folder DIR/NAME and have its name reach the disk; one that exists is fine. */
gw_err gw_hold_make(const char *dir, const char *name);

/** Rename an entry of DIR and have the names reach the disk. *why: 0, it is renamed, else errno. */
gw_err gw_hold_rename(const char *dir, const char *from, const char *to, int *why);

/** Remove folder DIR/NAME, which contains no folders, with its files, `first` before the others.
 *  first NULL: only if it is empty; if it is not, leave it and return GW_OK. GW_OK, too, if there
 *  is none. The target of a symbolic link stays. */
gw_err gw_hold_remove(const char *dir, const char *name, const char *first);

#endif
