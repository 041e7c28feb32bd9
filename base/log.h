/* log.h - one line per event to stderr: time, level, program, message; never on the step path.
 *
 * Line: `2026-01-31T12:00:00.123Z info gateway: text`. With log_json(true) each line is a JSON object
 * {"ts","level","prog","msg"}. Control characters in the message are escaped, so that no client can forge a line.
 * Prompts, answers and keys are never logged. Thread: any (one write(2) a line).
 */
#ifndef SLUICE_BASE_LOG_H
#define SLUICE_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_open(const char *prog, enum log_level level, bool json);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int log_level_parse(const char *s, enum log_level *out); /* "error" ... "debug"; -1 unknown */

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
