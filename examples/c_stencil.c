/* A plate whose upper edge is hot, its rows divided over the PEs, in C: sweeps of Jacobi's iteration with an exchange
 * of the outer rows.
 *
 * Run alone: oshcc -O2 examples/c_stencil.c -o stencil && pyshmemrun -n 4 ./stencil
 * With its sweep in Triton: c_stencil.py */
#include <shmem.h>
#include <stdio.h>

enum { ROWS = 16, COLUMNS = 64, SWEEPS = 20 };
static double grids[2][(ROWS + 2) * COLUMNS]; /* symmetric; the first and the last row are those of the neighbours */
static double own, sum;
double heat; /* of the whole plate */

static void sweep_in_c(double *to, const double *from, int rows, int columns) {
    for (int i = columns; i < (rows + 1) * columns; i++)
        if (i % columns && (i + 1) % columns)
            to[i] = 0.25 * (from[i - 1] + from[i + 1] + from[i - columns] + from[i + columns]);
}
void (*sweep)(double *to, const double *from, int rows, int columns) = sweep_in_c; /* the hook */

static void exchange(double *grid) {
    int me = shmem_my_pe(), last = shmem_n_pes() - 1;
    double *first = grid + COLUMNS, *lower = grid + (ROWS + 1) * COLUMNS;
    if (me > 0) shmem_double_put(lower, first, COLUMNS, me - 1);
    if (me < last) shmem_double_put(grid, lower - COLUMNS, COLUMNS, me + 1);
    shmem_barrier_all();
}

void run(void) {
    shmem_init();
    for (int i = 0; i < (ROWS + 2) * COLUMNS; i++)
        grids[0][i] = grids[1][i] = shmem_my_pe() == 0 && i < COLUMNS ? 100 : 0;
    shmem_barrier_all();
    for (int turn = 0; turn < SWEEPS; turn++) {
        exchange(grids[turn % 2]);
        sweep(grids[1 - turn % 2], grids[turn % 2], ROWS, COLUMNS);
    }
    own = 0;
    for (int i = COLUMNS; i < (ROWS + 1) * COLUMNS; i++) own += grids[SWEEPS % 2][i];
    shmem_double_sum_reduce(SHMEM_TEAM_WORLD, &sum, &own, 1);
    heat = sum;
    shmem_finalize();
}

int main(void) {
    shmem_init(); /* counted: the job lasts until the second finalize */
    run();
    if (shmem_my_pe() == 0) printf("%d PEs: heat %.3f\n", shmem_n_pes(), heat);
    shmem_finalize();
    return 0;
}
