"""`serve`: bundles, engine, demo page and language models over HTTP until a signal comes.

Input: bundle folders, language models.  Output: the address, as soon as connections are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.api.user_cache import user_cache
from tilewright.base.errors import StoreDown, StoreLocked, UsageError
from tilewright.bundle import open_bundle
from tilewright.cli.options import (
    Client,
    Json,
    Lookup,
    Pyodide,
    SignWith,
    WeightBits,
    bundle_names,
    database_url,
    signer_of,
)
from tilewright.cli.output import print_json, progress

if TYPE_CHECKING:
    from tilewright.bundle.signing import Signer
    from tilewright.language import LanguageModel
    from tilewright.store import KernelStore


def serve(
    bundles: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BUNDLE...",
            help="Serve the bundles in these folders. NAME=FOLDER gives a bundle another name.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Listen on this address.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Listen on this port. 0 takes any free port.")
    ] = 8000,
    isolation: Annotated[
        bool, typer.Option(help="Send the headers that threads need (COOP, COEP).")
    ] = True,
    store: Annotated[
        str,
        typer.Option(
            metavar="FILE|URL",
            envvar="TILEWRIGHT_STORE",
            help="Keep kernel votes in this database, as for `db`. Without one, reports of devices "
            "are refused.",
        ),
    ] = "",
    source_key: Annotated[
        str,
        typer.Option(
            envvar="TILEWRIGHT_SOURCE_KEY",
            help="Use this secret, which all servers of one store share. Without it, each server "
            "makes its own at every start.",
        ),
    ] = "",
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Let pages of this other site tune here, such as https://example.org. * stands "
            "for all sites. You can repeat this option.",
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Believe the visitors' addresses (X-Forwarded-For) from this reverse proxy, or "
            "from a network of proxies such as 10.0.0.0/8. Without it, all visitors of the proxy "
            "count as one. You can repeat this option.",
        ),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Serve requests for this name of the site, such as tuner.example. Requests for "
            "other names are refused, except localhost and addresses of this machine. You can "
            "repeat this option.",
        ),
    ] = None,
    compile_workers: Annotated[
        int,
        typer.Option(
            min=0,
            max=64,
            help="Make candidates in this number of processes. 0 makes them in a thread.",
        ),
    ] = 1,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            envvar="TILEWRIGHT_CACHE",
            help="Keep bundles that start with the voted kernels in this folder. Servers of a site "
            "can share it. By default it is in the user's cache folder.",
        ),
    ] = None,
    corun: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Show these results on the page /corun. They are output of `corun --json` or "
            "`corun --trace`, or a record of the benchmark corun.policies. You can repeat this "
            "option.",
        ),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL|BUNDLE",
            help="Let this language model answer at /v1/chat/completions, as OpenAI's service "
            "does. It is a model as for `chat`, or NAME=PATH. You can repeat this option.",
        ),
    ] = None,
    weights: WeightBits = None,
    lookup: Lookup = False,
    client: Client = False,
    pyodide: Pyodide = None,
    sign_with: SignWith = None,
    as_json: Json = False,
) -> None:
    """Serve bundles, the demo page and the tuning queue."""
    from tilewright.cli.compile_workers import makers
    from tilewright.cli.publish import core_of
    from tilewright.server import Tuning, create_app
    from tilewright.server import serve as serve_app

    core = core_of(client, pyodide)
    if not (bundles or corun or language):
        raise UsageError(
            "There is nothing to serve",
            hint="Name a bundle, results by --corun, or a language model by --language",
        )
    if weights is not None and not language:
        raise UsageError("--weights is for language models", hint="Add --language, or leave it out")
    if lookup and not language:
        raise UsageError("--lookup is for language models", hint="Add --language, or leave it out")
    folders, signer = bundle_names(bundles or ()), signer_of(sign_with)
    speakers = bundle_names(language or ())
    _check_bundles(folders, signer)
    tuning = Tuning(
        makers=makers(compile_workers),
        store=open_store(store),
        secret=source_key,
        proxies=tuple(trusted_proxy or ()),
        origins=frozenset(allow_origin or ()),
        cache=cache or user_cache() / "relinked",
        signer=signer,
    )

    def ready(url: str) -> None:
        if as_json:
            print_json({"url": url, "bundles": list(folders), "languages": list(speakers)})
        else:
            what = ", ".join([*folders, *speakers, *(path.name for path in corun or ())])
            typer.echo(f"Serving {what} at {url}  (Ctrl+C ends it)")

    with _opened(speakers, weights, lookup, as_json) as languages:
        app = create_app(
            folders,
            tuning=tuning,
            isolation=isolation,
            pyodide=core,
            names=host_name or (),
            corun=corun or (),
            languages=languages,
        )
        serve_app(app, host, port, ready, proxies=tuning.proxies)


@contextmanager
def _opened(
    paths: Mapping[str, Path], weights: int | None, lookup: bool, as_json: bool
) -> Generator[Mapping[str, LanguageModel]]:
    """Language models that are ready to answer."""
    if not paths:
        yield {}
        return
    from tilewright.api.language import language_model

    with ExitStack() as stack:
        found = {}
        for name, path in paths.items():
            with progress(as_json) as report:
                opened = language_model(path, weights=weights, on_progress=report, lookup=lookup)
            found[name] = stack.enter_context(opened)
        yield found


def _check_bundles(folders: Mapping[str, Path], signer: Signer | None) -> None:
    """Opens each bundle.  Raises UsageError for one that the signer did not sign."""
    for name, folder in folders.items():
        pointer = open_bundle(folder).pointer
        if signer and not signer.signed(pointer):
            raise UsageError(
                f"The bundle {name} is not signed by this key: pages that verify would refuse it",
                hint="Build it with --sign-with and the same key",
                path=str(folder),
            )


def open_store(place: str) -> Callable[[], KernelStore] | None:
    """Opens the store: a file, or an address.

    If the store is only unreachable or busy, the server starts and tries again later.
    """
    if not place:
        return None
    url = database_url(place)
    from tilewright.store import KernelStore

    try:
        KernelStore.open(url).close()
    except (StoreDown, StoreLocked) as error:
        typer.echo(f"Warning: {error}", err=True)
    return partial(KernelStore.open, url)
