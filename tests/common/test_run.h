/* test_run.h - the end of every test program's main: run one suite in this process, say how it went. */
#ifndef SLUICE_TESTS_COMMON_TEST_RUN_H
#define SLUICE_TESTS_COMMON_TEST_RUN_H

#include <check.h>

/* Without fork, so that sanitizers see the whole program. Returns the exit status. */
static inline int test_run(Suite *s)
{
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}

#endif
