/* Log lines on stderr, with levels. MEDLEY_LOG=error|warn|info|debug picks what is shown
 * (default warn). Any thread; a line is written whole. Never log a prompt or a secret. */
#pragma once

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_line(enum log_level level, const char *room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void log_set_level(enum log_level level); /* overrides MEDLEY_LOG */
enum log_level log_level(void);
