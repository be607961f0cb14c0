/* A plate whose upper edge is hot, its rows divided over the PEs, in C: sweeps of Jacobi's iteration with an exchange
 * of the outer rows.
 *
 * Run alone: oshcc -O2 examples/c_stencil.c -o stencil && pyshmemrun -n 4 ./stencil
 * With its sweep in Triton: c_stencil.py */
#include <shmem.h>
#include <stdio.h>

enum { ROWS = 16, COLUMNS = 64, SWEEPS = 20, CELLS = (ROWS + 2) * COLUMNS };
static double own, sum; /* symmetric, as all static data */
double heat;            /* of the whole plate */
long hints = 0;         /* for the memory of the grids: PYSHMEM_HINT_GPU, if kernels sweep */

static void sweep_in_c(double *to, const double *from, int rows, int columns) {
    for (int i = columns; i < (rows + 1) * columns; i++)
        if (i % columns && (i + 1) % columns)
            to[i] = 0.25 * (from[i - 1] + from[i + 1] + from[i - columns] + from[i + columns]);
}
void (*sweep)(double *to, const double *from, int rows, int columns) = sweep_in_c; /* the hook */

/* The first and the last row of a grid are those of the neighbours. */
static void exchange(double *grid) {
    int me = shmem_my_pe(), last = shmem_n_pes() - 1;
    double *first = grid + COLUMNS, *lower = grid + (ROWS + 1) * COLUMNS;
    if (me > 0) shmem_double_put(lower, first, COLUMNS, me - 1);
    if (me < last) shmem_double_put(grid, lower - COLUMNS, COLUMNS, me + 1);
    shmem_barrier_all();
}

void run(void) {
    shmem_init();
    double *grids[2], values[CELLS];
    for (int i = 0; i < CELLS; i++) values[i] = shmem_my_pe() == 0 && i < COLUMNS ? 100 : 0;
    for (int i = 0; i < 2; i++) {
        grids[i] = shmem_malloc_with_hints(sizeof values, hints);
        shmem_double_put(grids[i], values, CELLS, shmem_my_pe());
    }
    shmem_barrier_all();
    for (int turn = 0; turn < SWEEPS; turn++) {
        exchange(grids[turn % 2]);
        sweep(grids[1 - turn % 2], grids[turn % 2], ROWS, COLUMNS);
    }
    shmem_double_get(values, grids[SWEEPS % 2], CELLS, shmem_my_pe());
    own = 0;
    for (int i = COLUMNS; i < (ROWS + 1) * COLUMNS; i++) own += values[i];
    shmem_double_sum_reduce(SHMEM_TEAM_WORLD, &sum, &own, 1);
    heat = sum;
    for (int i = 0; i < 2; i++) shmem_free(grids[i]);
    shmem_finalize();
}

int main(void) {
    shmem_init(); /* counted: the job lasts until the second finalize */
    run();
    if (shmem_my_pe() == 0) printf("%d PEs: heat %.3f\n", shmem_n_pes(), heat);
    shmem_finalize();
    return 0;
}
