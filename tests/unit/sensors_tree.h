/* A folder with the kernel's files as a machine would show them, made and changed by a test. */
#pragma once

struct tree {
    char root[64];
};

void tree_open(struct tree *tree);  /* an empty temporary folder */
void tree_close(struct tree *tree); /* removes it with all that is in it */

/* Paths are below the root, formatted as by printf. Folders on the way are made. */
void tree_write(const struct tree *tree, const char *text, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void tree_folder(const struct tree *tree, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void tree_pipe(const struct tree *tree, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void tree_remove(const struct tree *tree, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A laptop: two sockets' worth of coretemp, RAPL, four cores at 1 to 4 GHz, 16 GiB, a battery,
 * mains, PSI. */
void tree_add_laptop(const struct tree *tree);
/* A Radeon at `pci`: junction 71 °C, 180 W of 250, 2.1 GHz, 3 of 16 GiB used, 87 % busy. */
void tree_add_radeon(const struct tree *tree, const char *pci);
/* An Arc at `pci` under xe: 55 °C, limit 190 W, 2.4 GHz, an energy counter at 5 J. */
void tree_add_arc(const struct tree *tree, const char *pci);
