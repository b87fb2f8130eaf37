/* Lines of shell that start `medley` as a user does: "$MEDLEY" is the program, and the folder they
 * run in, a fresh one, holds its home and its state. */
#pragma once

/* For cmocka's groups: make that folder and enter it; remove it. */
int shell_open(void **state);
int shell_close(void **state);

/* Exit status; *said: what it wrote, errors too, valid until the next. */
int shell_run(const char *line, const char **said);
/* It ends so, and says that among other things. */
void shell_expect(int status, const char *line, const char *part);
