#include "links.h"

#include <string.h>

const char *next_link(const char *from, char *target, size_t size)
{
	while ((from = strstr(from, "](")) != NULL) {
		size_t length = strcspn(from += 2, ")\n");

		if (from[length] == ')' && length < size) {
			memcpy(target, from, length);
			target[length] = '\0';
			return from + length;
		}
	}
	return NULL;
}

int is_local(const char *target)
{
	return *target != '#' && strstr(target, "://") == NULL;
}
