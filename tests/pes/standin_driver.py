"""What stands for a GPU driver's launch of kernels: the native module calls it by address."""

import ctypes

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_uint64,
    *[ctypes.c_uint] * 7,
    ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class Driver:
    """``address``: of a cuLaunchKernel that answers ``code``. ``calls``: (kernel, grid, threads, shared bytes, stream, words)
    of each call, the first eight of its parameters as words."""

    def __init__(self, code=0):
        self.code, self.calls = code, []
        self.function = LAUNCH(self.launch)  # kept: it is called by address
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value

    def launch(self, kernel, x, y, z, threads, block_y, block_z, shared, stream, parameters, extra):
        assert (block_y, block_z, extra) == (1, 1, None)
        words = [ctypes.c_uint64.from_address(parameters[place]).value for place in range(8)]
        self.calls.append((kernel, (x, y, z), threads, shared, stream, words))
        return self.code
