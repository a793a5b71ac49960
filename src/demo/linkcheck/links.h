/* Links of a Markdown page. */
#ifndef LINKS_H
#define LINKS_H

#include <stddef.h>

/* Copies the target of the next link into `target`; returns where to continue, or NULL after the last one. */
const char *next_link(const char *from, char *target, size_t size);

/* Whether a target is another file of the same site. */
int is_local(const char *target);

#endif
