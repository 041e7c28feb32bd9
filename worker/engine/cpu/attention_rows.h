/* attention_rows.h - from run-time numbers of rows and forms to the kernels' constants; included by
 * each instance behind its templates scores_r and values_r.
 */
#define ROWS_CASES(call) \
    switch (n_rows) { \
    case 6: call(6); break; \
    case 4: call(4); break; \
    case 3: call(3); break; \
    case 2: call(2); break; \
    default: call(1); break; \
    }

ALWAYS_INLINE void scores_form(struct tile *t, const struct run *run, uint32_t row, uint32_t n_rows,
                               const enum run_form form) {
#define CALL(R) scores_r(t, run, row, R, form)
    ROWS_CASES(CALL)
#undef CALL
}

ALWAYS_INLINE void values_form(struct tile *t, const struct run *run, uint32_t row, uint32_t n_rows,
                               uint32_t from, uint32_t to, const enum run_form form) {
#define CALL(R) values_r(t, run, row, R, from, to, form)
    ROWS_CASES(CALL)
#undef CALL
}

static void scores_rows(struct tile *t, const struct run *run, uint32_t row, uint32_t n_rows) {
    if (t->form == RUN_F32)
        scores_form(t, run, row, n_rows, RUN_F32);
    else if (t->form == RUN_F16)
        scores_form(t, run, row, n_rows, RUN_F16);
    else
        scores_form(t, run, row, n_rows, RUN_INT8);
}

static void values_rows(struct tile *t, const struct run *run, uint32_t row, uint32_t n_rows,
                        uint32_t from, uint32_t to) {
    if (t->form == RUN_F32)
        values_form(t, run, row, n_rows, from, to, RUN_F32);
    else if (t->form == RUN_F16)
        values_form(t, run, row, n_rows, from, to, RUN_F16);
    else
        values_form(t, run, row, n_rows, from, to, RUN_INT8);
}
