/* linkcheck PAGE...: checks every link to another page; exits 1 if one is broken. */
#include "links.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char page[1 << 20];

static int check(const char *path, int *number)
{
	const char *slash = strrchr(path, '/'), *at = page;
	int directory = slash ? (int)(slash - path + 1) : 0, broken = 0;
	char target[512], file[1024];
	FILE *stream = fopen(path, "r");

	if (stream == NULL) {
		perror(path);
		return 1;
	}
	page[fread(page, 1, sizeof page - 1, stream)] = '\0';
	fclose(stream);
	while ((at = next_link(at, target, sizeof target)) != NULL) {
		if (!is_local(target))
			continue;
		snprintf(file, sizeof file, "%.*s%s", directory, path, target);
		int missing = access(file, R_OK) != 0;
		printf("%s %d - %s links to %s\n", missing ? "not ok" : "ok", ++*number, path, target);
		broken += missing;
	}
	return broken;
}

int main(int argc, char **argv)
{
	int broken = 0, number = 0;

	for (int i = 1; i < argc; i++)
		broken += check(argv[i], &number);
	printf("1..%d\n", number);
	return broken > 0;
}
