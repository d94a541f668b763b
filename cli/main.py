"""The app: every verb under its heading, and how errors end it. Start here; each group of verbs is a file beside it.

Nothing heavy is imported until a verb runs, so that `dlrmx --help` answers at once.
"""

import sys
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from dlrmx.errors import DlrmxError

from . import checkpoints, clusters, data, doctor, init, plan, preview, recipes, runs, train
from .output import say, say_error


class _Verbs(TyperGroup):
    """Errors meant for users end without a traceback, with their exit code; help lists verbs under their headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = formatter.width - max(map(len, self.commands)) - 6
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, verb in self.commands.items():
            heading = cast("TyperCommand | TyperGroup", verb).rich_help_panel
            sections.setdefault(heading or "", []).append((name, verb.get_short_help_str(width)))
        for heading, verbs in sections.items():
            with formatter.section(heading):
                formatter.write_dl(verbs)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader went away (`| head`): Typer ends quietly
        except KeyboardInterrupt:
            say("interrupted")
            raise
        except DlrmxError as error:
            say_error(str(error))
            raise typer.Exit(error.exit_code) from error
        except MemoryError as error:
            say_error(
                f"memory ran out: {error}\n    Smaller tables or a smaller batch need less; `dlrmx plan` shows bytes."
            )
            raise typer.Exit(1) from error
        except OSError as error:
            say_error(_os_error_text(error))
            raise typer.Exit(1) from error


def _os_error_text(error: OSError) -> str:
    """One line for what the system refused (full disk, permissions), and a way out."""
    if isinstance(error, FileNotFoundError) and not error.filename:
        return "the shell's folder no longer exists\n    Change into another folder, then try again."
    what = error.strerror or str(error)
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{what}\n    Check the path, its permissions and the free space, then try again."


def _show_version(asked: bool) -> None:
    if asked:
        import dlrmx

        typer.echo(dlrmx.__version__)
        raise typer.Exit


app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback is our bug: plain, to be pasted into a report
    rich_markup_mode=None,  # plain help: drawing boxes would take longer than all the rest of --help
    help="Train recommendation models (DLRM) whose embedding tables do not fit on one device.",
    epilog="Begin with: dlrmx train quickstart",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _dlrmx(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    pass


_VERBS: dict[str, list[Callable[..., None]]] = {
    "Train": [train.train, train.resume, train.evaluate],
    "Before you pay": [init.init, preview.check, plan.plan],
    "Runs": [runs.runs, runs.status, runs.watch, runs.logs, runs.report, runs.cancel],
}
for _heading, _verbs in _VERBS.items():
    for _verb in _verbs:
        app.command(rich_help_panel=_heading)(_verb)

app.add_typer(data.app, name="data", rich_help_panel="Before you pay")
app.add_typer(recipes.app, name="recipes", rich_help_panel="Library")
app.add_typer(checkpoints.app, name="checkpoints", rich_help_panel="Library")
app.add_typer(clusters.app, name="clusters", rich_help_panel="Library")
app.command(rich_help_panel="When it does not work")(doctor.doctor)


def main() -> None:
    """The `dlrmx` command."""
    try:
        app(prog_name="dlrmx")
    except OSError as error:  # help and version are printed before any verb is invoked
        say_error(_os_error_text(error))
        sys.exit(1)
