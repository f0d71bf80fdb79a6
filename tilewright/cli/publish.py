"""`build --static` and `--client`: writes files beside a bundle, so that a page can tune without a
server.

Input: the options.  Output: files in the bundle's folder, and their sizes.
tuning/candidate_folder.py and server/static.py decide which files.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.errors import UsageError
from tilewright.bundle import Bundle
from tilewright.cli.options import check_objective
from tilewright.cli.output import Show

if TYPE_CHECKING:
    from tilewright.bundle.signing import Signer
    from tilewright.targets.device_class import DeviceClass
    from tilewright.targets.lite_space import Objective
    from tilewright.tuning.candidate_folder import Written


@dataclass(frozen=True)
class Publication:
    """The files to write.  It is made before the model is compiled, so that wrong options are found
    first."""

    classes: tuple[DeviceClass, ...]
    objective: Objective
    core: Path | None
    signer: Signer | None

    @property
    def names(self) -> tuple[str, ...]:
        """Paths of the files that will be written, except those named by their digest."""
        from tilewright.server.static import compiler_files, page_files
        from tilewright.tuning.candidate_folder import FOLDER, INDEX

        index = (f"{FOLDER}/{INDEX}",) if self.classes else ()
        compiler = compiler_files() if self.core else ()
        pages = tuple(page_files()) if index or compiler else ()
        return (*pages, *index, *compiler)

    def write(self, bundle: Bundle, report: Show) -> dict[str, object]:
        """Writes the files; returns numbers and sizes for the answer."""
        if not self.names:
            return {}
        from tilewright.server.static import write_compiler, write_pages

        found: dict[str, object] = {"pages_bytes": write_pages(bundle.folder)}
        if self.classes:
            made = self._candidates(bundle, report)
            found |= {
                "classes": list(made.classes),
                "objective": self.objective,
                "candidates": made.candidates,
                "candidate_modules": made.modules,
                "tuning_bytes": made.bytes,
                "left_out": [asdict(one) for one in made.left_out],
            }
        if self.core is not None:
            found["compiler_bytes"] = write_compiler(bundle.folder, self.core)
        return found

    def _candidates(self, bundle: Bundle, report: Show) -> Written:
        """Makes all candidates on all cores, each within the time limit that a server has."""
        from tilewright.cli.compile_workers import makers
        from tilewright.server.session_resources import MAKING
        from tilewright.server.workers import Workers
        from tilewright.tuning.candidate_folder import write_candidates

        count = os.cpu_count() or 1
        workers = Workers(makers(count).pool, count, MAKING)
        try:
            return write_candidates(
                bundle, self.classes, self.objective, report, workers.run, self.signer
            )
        finally:
            workers.close()


def publication(
    static: bool,
    client: bool,
    classes: list[str] | None,
    objective: str | None,
    pyodide: Path | None,
    signer: Signer | None,
) -> Publication:
    """The publication for these options of `build`.  Raises UsageError for wrong ones."""
    serves = check_objective(objective or "latency")
    if objective and not static:
        raise UsageError(
            "--objective without --static has no effect",
            hint="Add --static; a page that has the compiler names its own: "
            f"?tune=client&objective={objective}",
        )
    if classes and not static:
        raise UsageError("--classes without --static has no effect", hint="Add --static")
    from tilewright.tuning.candidate_folder import tunable_classes

    found = tunable_classes(classes or ()) if static else ()
    return Publication(found, serves, core_of(client, pyodide), signer)


def core_of(client: bool, pyodide: Path | None) -> Path | None:
    """The folder of Pyodide's core if --client is given; else None."""
    if pyodide is not None and not client:
        raise UsageError("--pyodide without --client has no effect", hint="Add --client")
    from tilewright.server.pyodide import core

    return core(pyodide) if client else None
