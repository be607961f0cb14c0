"""Programs of one GPU or of several, one wave each, whose instructions alternate at random: a run is one of many orders."""

import ctypes

import numpy as np
import pyshmem as shmem
import torch
import triton.language as tl
from emulator import LANES, LINE, Gpu, Wave
from instructions import decode
from pyshmem.device.arch.fields import encoded, encoded_distance

STEPS = (1, 2, 5, 12, 30)  # instructions of a wave until another one has its turn
HEAP = 32 * LINE  # bytes of a heap


class Machine:
    """``agents`` programs: each on a GPU of its own with a heap of its own, or all on the first one.

    heaps: the words of all heaps, a row a PE.  device: of tests/amd_emulated/launching, which compiles.  chance: a
    random.Random, which picks the program that goes on, and the loads that are late.
    """

    def __init__(self, device, agents, on_one_gpu, chance):
        self.device, self.agents, self.on_one_gpu, self.chance = device, agents, on_one_gpu, chance
        memory = torch.zeros((agents * HEAP + LINE) // 8, dtype=torch.int64)
        skipped = -memory.data_ptr() % LINE // 8  # heaps begin with a line
        self.heaps = memory[skipped : skipped + agents * HEAP // 8].reshape(agents, HEAP // 8)
        self.gpus = [self._gpu(self.heaps[pe].data_ptr()) for pe in range(1 if on_one_gpu else agents)]

    def _gpu(self, own):
        first, last = self.heaps.data_ptr(), self.heaps.data_ptr() + self.agents * HEAP

        def shared(places):
            return (places >= first) & (places < last)

        def away(places):
            return shared(places) & ~((places >= own) & (places < own + HEAP))

        model = self.device.gpu
        return Gpu(decode, away, shared, model.cached, model.eight, model.tick, late=shared, is_late_load=self._coin)

    def _coin(self):
        return self.chance.random() < 0.5

    def context(self, pe):
        """The device context of a PE."""
        ctx = shmem.device_context()
        return ctx._replace(
            me=encoded(pe),
            n_pes=encoded(self.agents),
            stride=encoded_distance(HEAP),
            base=self.heaps[pe].data_ptr(),
            start=encoded(0),
            step=encoded(1),
            by_table=tl.constexpr(False),
            members=tl.constexpr(4),
        )

    def outcomes(self, kernel, options, turns, until=lambda outcome: False):
        """Run kernel(ctx, heap, seen, kept, *options) ``turns`` times in random orders, or until an outcome is looked for.

        Return the values of ``seen``.
        heap: of the program's PE.  seen: two words of each program, -1 until it writes them.  kept: private words.
        """
        seen, kept = torch.empty((self.agents, 2), dtype=torch.int64), torch.empty(1 << 10, dtype=torch.int64)
        launches = []
        for agent in range(self.agents):
            pe = 0 if self.on_one_gpu else agent
            args = (self.context(pe), self.heaps[pe], seen, kept, *options)
            grid = (self.agents,) if self.on_one_gpu else (1,)
            launches.append(self.device.prepared(kernel, args, {}, grid, {"num_warps": 1}))
        found = set()
        for _ in range(turns):
            self.heaps.zero_()
            seen.fill_(-1)
            self._turn(launches)
            found.add(tuple(map(tuple, seen.tolist())))
            if until(tuple(map(tuple, seen.tolist()))):
                break
        return found

    def _turn(self, launches):
        running = []
        for agent, (code, _, threads, arguments) in enumerate(launches):
            local, place = np.zeros(1 << 10, np.uint32), (agent if self.on_one_gpu else 0, 0, 0)
            wave = Wave(code, ctypes.addressof(arguments), local.ctypes.data, 0, threads, place)
            running.append((self.gpus[0 if self.on_one_gpu else agent], wave, {}, local))
        assert all(threads == LANES for _, _, threads, _ in launches)
        waves = list(running)
        while running:
            which = self.chance.randrange(len(running))
            gpu, wave, lines, local = running[which]
            gpu.lines, gpu.local = lines, local  # each program has those of its compute unit
            self._advance(gpu, wave)
            if wave.done:
                del running[which]
                if self._coin():  # the end of a kernel completes everything, now or later
                    gpu.drain(wave)
                    gpu.write_back()
        for gpu, wave, _, _ in waves:
            gpu.drain(wave)
        for gpu in self.gpus:
            gpu.write_back()

    def _advance(self, gpu, wave):
        """Execute a few instructions, often up to an access. A store may arrive at once, or as late as it may be."""
        issued = wave.issued
        for _ in range(self.chance.choice(STEPS)):
            if wave.done:
                return
            gpu.step(wave)
            if wave.issued > issued:
                issued = wave.issued
                if self._coin():
                    gpu.leave(wave)
                    gpu.write_back()
                if self._coin():
                    return
