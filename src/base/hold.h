/** Folders that this process holds by their descriptors. Someone may remove or rename such a folder
 *  and make another of its name; whatever is written by a path that begins with the folder's then
 *  still goes to the folder that is held, or fails. Paths that begin with no held folder are as
 *  the system has them. Any thread. */
#ifndef GW_BASE_HOLD_H
#define GW_BASE_HOLD_H

#include "base/err.h"

#define GW_HOLD_LOCK ".lock"

typedef struct gw_hold gw_hold;

/** Hold `dir`, open as `fd`, with its GW_HOLD_LOCK, open as `lock`: until gw_hold_end, which closes
 *  both. On an error they remain the caller's. */
gw_err gw_hold_begin(gw_hold **out, const char *dir, int fd, int lock);

/** h may be NULL. */
void gw_hold_end(gw_hold *h);

/** GW_ERR_LOST: `path` is or lies in a held folder whose name stands for another now, or for none,
 *  or whose lock is no longer there, so that others may have come. */
gw_err gw_hold_check(const char *path);

/** Open folder `dir`; *fd is the caller's. Below a held folder it is looked for from there, through
 *  no symbolic link, and gw_hold_check comes first. GW_ERR_INPUT with errno: there is none.
 *  GW_ERR_LOST. */
gw_err gw_hold_open(const char *dir, int *fd);

/* What follows opens DIR by gw_hold_open, and fails with GW_ERR_LOST or GW_ERR_IO. */

/** Make folder DIR/NAME and have its name reach the disk; one that exists is fine. */
gw_err gw_hold_make(const char *dir, const char *name);

/** Rename an entry of DIR and have the names reach the disk. *why: 0, it is renamed, else errno. */
gw_err gw_hold_rename(const char *dir, const char *from, const char *to, int *why);

/** Remove folder DIR/NAME with the files in it, `first` before the others; it has no folders in
 *  it. first NULL: only if it is empty; one that is not stays, and that is fine. None is fine, too.
 *  Of a symbolic link what it leads to stays. */
gw_err gw_hold_remove(const char *dir, const char *name, const char *first);

#endif
