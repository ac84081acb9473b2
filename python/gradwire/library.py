"""libgradwire.so: finding it, its functions, and its errors as exceptions."""

import ctypes
import ctypes.util
import enum
import glob
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
import traceback

VERSION = "0.1.0"  # of the library that this package was written for
ALL = -1  # instead of a group
PARAM, GRAD = 0, 1  # of Session.memory
SONAME = "libgradwire.so.0"
REMEDY = ("build gradwire by ./quickstart or `pip install .`, and put its folder into PATH, or set GRADWIRE_LIBRARY to its "
          "libgradwire.so")


class Phase(enum.IntEnum):
    """What the rank does from now on, for the ledger of time."""

    OTHER, DATA, FORWARD, BACKWARD, UPDATE, CHECKPOINT, MPI = range(7)


class Error(RuntimeError):
    """What the library says, in one line; `code` is its negative error."""

    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code


_int, _long, _size, _double, _text, _at = (ctypes.c_int, ctypes.c_long, ctypes.c_size_t,
                                           ctypes.c_double, ctypes.c_char_p, ctypes.c_void_p)
_to = ctypes.POINTER
FUNCTIONS = {  # name: result, parameters, as the header has them
    "gradwire_error": (_text, []),
    "gradwire_alone": (_int, [_int]),
    "gradwire_start": (_int, [_text, _to(_int), _to(_int)]),
    "gradwire_words": (_text, [_text, _text]),
    "gradwire_new": (_int, [_to(_at), _int, _text]),
    "gradwire_tensor": (_int, [_at, _text, _int, _size, _size, _at]),
    "gradwire_open": (_int, [_at]),
    "gradwire_share": (_int, [_at, _at, _size]),
    "gradwire_memory": (_at, [_at, _int, _int]),
    "gradwire_begin": (_int, [_at, _long, _long]),
    "gradwire_phase": (_int, [_at, _int]),
    "gradwire_ready": (_int, [_at, _int, _at, _at]),
    "gradwire_lend": (_int, [_at, _at, _size, _int]),
    "gradwire_poll": (_int, [_at]),
    "gradwire_finish": (_int, [_at, _int]),
    "gradwire_owned": (_int, [_at, _int, _to(_int), _to(_size), _to(_size)]),
    "gradwire_update": (_int, [_at, _int, ctypes.c_float]),
    "gradwire_updated": (_int, [_at, _int]),
    "gradwire_await": (_int, [_at, _int]),
    "gradwire_left_out": (_int, [_at]),
    "gradwire_cancel": (_int, [_at]),
    "gradwire_end": (_int, [_at, _double]),
    "gradwire_settle": (_int, [_at]),
    "gradwire_validated": (_int, [_at, _double, _double]),
    "gradwire_epoch": (_int, [_at, _double, _double]),
    "gradwire_save": (_int, [_at, _to(_at), _to(_size)]),
    "gradwire_load": (_int, [_at, _text, _size]),
    "gradwire_mean": (_int, [_at, _int, _to(_double), _double]),
    "gradwire_figure": (_double, [_at, _text]),
    "gradwire_text": (_text, [_at, _text]),
    "gradwire_leave": (_int, [_at, _double]),
    "gradwire_close": (_int, [_at]),
}


def places():
    """Where libgradwire.so may be: what says so, and the path (None: nowhere). The first that says something is
    taken, and a library that the user names goes before those that happen to be there."""
    yield "GRADWIRE_LIBRARY", os.environ.get("GRADWIRE_LIBRARY") or None
    yield "the package", first_of(os.path.dirname(os.path.abspath(__file__)))
    program = shutil.which("gradwire")
    yield "gradwire in PATH", program and of_program(os.path.realpath(program))
    yield "pkg-config", of_pkg_config()
    yield "the loader", ctypes.util.find_library("gradwire")


def first_of(*folders):
    """The library in the first of these folders that has it."""
    paths = (os.path.join(folder, name) for folder in folders for name in (SONAME, "libgradwire.so"))
    return next(filter(os.path.exists, paths), None)


def of_program(program):
    """The library that was built or installed with it."""
    beside = os.path.dirname(program)
    return first_of(beside, *sorted(glob.glob(os.path.join(beside, "..", "lib*"))),
                    *sorted(glob.glob(os.path.join(beside, "..", "lib", "*-*"))))


def of_pkg_config():
    try:
        done = subprocess.run(["pkg-config", "--libs-only-L", "gradwire"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return first_of(*(word[2:] for word in shlex.split(done.stdout)))


def find():
    """(what says so, what to load: a path, or a name for the loader)."""
    for who, path in places():
        if path and (os.path.exists(path) or who == "the loader"):
            return who, path
        if path:
            raise Error(f"{who}={path}: no such file: name a libgradwire.so")
    raise Error(f"no {SONAME}: GRADWIRE_LIBRARY names none, there is none beside the package, and neither `gradwire` "
                f"in PATH, pkg-config nor the loader leads to one: {REMEDY}")


def share_environment():
    """With DEEPBIND a library sees the C library's own `environ`, which is not set where the program
    has one, too."""
    own = ctypes.c_void_p.in_dll(ctypes.CDLL("libc.so.6"), "environ")
    own.value = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ").value


def load():
    """The library with its functions declared. PyTorch loads what it depends on for all to see, and
    Debian's depends on Open MPI: without DEEPBIND the library would call that one's functions."""
    _, path = find()
    mode = os.RTLD_LOCAL  # and RTLD_NOW, which ctypes adds: nothing is bound later
    if "torch" in sys.modules and hasattr(ctypes.CDLL(None), "MPI_Init"):
        mode |= os.RTLD_DEEPBIND
        share_environment()
    try:
        library = ctypes.CDLL(path, mode=mode)
    except OSError as error:
        raise Error(f"cannot load {path}: {error}: {REMEDY}") from None
    for name, (result, parameters) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise Error(f"{path} has no {name}: it is no libgradwire.so of version {VERSION}") from None
        function.restype, function.argtypes = result, parameters
    return library


_library = None


def library():
    """The library, loaded at the first call."""
    global _library
    if _library is None:
        _library = load()
    return _library


def check(code):
    """The code, unless it is an error."""
    if code < 0:
        raise Error(library().gradwire_error().decode(errors="replace"), code)
    return code


def checked(words):
    """`words`, if they are a text."""
    if not isinstance(words, str):
        raise Error(f"words: {type(words).__name__} instead of a text: give options in one, such as "
                    "'--comm iallreduce --compress bf16'")
    return words


def of_words(words, key):
    """What a session's text(key) will be by these words; refuses them as a session does, without MPI or other ranks."""
    text = library().gradwire_words(checked(words).encode(), key.encode())
    if text is None:
        check(-1)
    return text.decode(errors="replace")


def world():
    """MPI_COMM_WORLD, as an argument."""
    own = library()
    if hasattr(own, "ompi_mpi_comm_world"):
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(own, "ompi_mpi_comm_world")))
    return ctypes.c_int(0x44000000)  # MPICH's, and that of all that share its ABI


def abort():
    """Ends the whole job."""
    time.sleep(0.3)  # launchers drop what they have not read by then
    library().MPI_Abort(world(), 1)
    os._exit(1)  # a launcher kills the process before that; torchrun does so when it has ended


def forked():
    """Whether this process is a child of the rank, and ends as it likes: others wait for the rank."""
    return _pid not in (None, os.getpid())


def shared(error):
    """Whether all ranks have this exception."""
    return isinstance(error, Error) and error.code < 0 and not library().gradwire_alone(error.code)


def last_words(kind, error, trace):
    """An uncaught exception: where the other ranks do not have the same one, they would wait for this
    rank forever."""
    if forked():
        return sys.__excepthook__(kind, error, trace)
    known = shared(error)
    stderr = sys.__stderr__ or sys.stderr  # torch.distributed's hook would hold it back until too late
    if not known or _rank == 0:
        print(told(kind, error, trace), end="", file=stderr)
    sys.stdout.flush()
    stderr.flush()
    if not known:
        abort()


def told(kind, error, trace):
    """As Python tells an exception; one of gradwire's without the lines within the package, in which its user has no
    part."""
    if not isinstance(error, Error):
        return "".join(traceback.format_exception(kind, error, trace))
    package = os.path.dirname(os.path.abspath(__file__))
    lines = [line for line in traceback.extract_tb(trace) if not line.filename.startswith(package)]
    return "".join(traceback.format_list(lines)) + f"gradwire.library.Error: {error}\n"


def last_words_of_thread(args, before=threading.excepthook):
    """The same of a thread that a session belongs to: no other may use it. Others' are their own affair."""
    if not forked() and args.thread is not None and args.thread.ident == _owner:
        last_words(args.exc_type, args.exc_value, args.exc_traceback)
    else:
        before(args)


def own(thread):
    """The thread that the open sessions belong to; None: there is none any more."""
    global _owner
    _owner = thread


_rank = 0
_pid = None  # of the rank
_owner = None


def start_mpi(words):
    """As gradwire.start, but MPI knows its ranks."""
    global _rank, _pid
    rank, ranks = ctypes.c_int(), ctypes.c_int()
    check(library().gradwire_start(checked(words).encode(), ctypes.byref(rank), ctypes.byref(ranks)))
    _rank, _pid = rank.value, os.getpid()
    if ranks.value > 1:
        sys.excepthook, threading.excepthook = last_words, last_words_of_thread
    return rank.value, ranks.value


def location():
    """The path of the library that is loaded."""
    found = (ctypes.c_void_p * 4)()  # Dl_info, whose first member is a name
    function = ctypes.cast(library().gradwire_error, ctypes.c_void_p)
    ctypes.CDLL(None).dladdr(function, ctypes.byref(found))
    return os.path.realpath(ctypes.string_at(found[0]).decode())


def mpiexec():
    """The launcher that was found to fit the library when it was built; None: the library came without it."""
    folder = os.path.dirname(location())
    above = [os.path.join(folder, *[".."] * up, "share/gradwire/build/release") for up in (1, 2)]  # lib, lib/x86_64-..
    return next(filter(os.path.exists, (os.path.join(place, "mpiexec") for place in (folder, *above))), None)


def mpi_version():
    """What the MPI library that libgradwire is linked with says of itself."""
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    library().MPI_Get_library_version(text, ctypes.byref(length))
    return text.value.decode(errors="replace")


def handle_of(comm):
    """The integer that gradwire_new takes for a communicator of mpi4py; None: the world."""
    if comm is None:
        return -1
    if not hasattr(comm, "py2f"):
        raise Error(f"comm: {type(comm).__name__} is not an mpi4py communicator")
    from mpi4py import MPI
    theirs, ours = first_line(MPI.Get_library_version()), first_line(mpi_version())
    if theirs != ours:
        raise Error(f"comm: mpi4py uses {theirs}, gradwire {ours}: build mpi4py for the same MPI "
                    "library, or leave comm out")
    return comm.py2f()


def first_line(text):
    return " ".join(text.replace("\0", "").strip().split("\n")[0].split())
