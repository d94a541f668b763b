"""The arguments and options that verbs share. A new setting is a recipe field, not an option here."""

from typing import Annotated

import typer

Recipe = Annotated[str, typer.Argument(metavar="RECIPE", help="Path of a recipe, or the bare name of a shipped one.")]
Run = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="Name, unique prefix or path of a run.", show_default="the newest"),
]
Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN]...", help="Names, unique prefixes or paths.", show_default="the newest"),
]
RunOrCheckpoint = Annotated[
    str,
    typer.Argument(
        metavar="RUN|CHECKPOINT", help="A run (its newest good checkpoint is taken), or the path of a checkpoint."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="KEY=VALUE", help="Override a setting by its dotted key; cluster.KEY sets the profile."
    ),
]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="NAME", help="Use this cluster profile instead.")]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, help="Use this many nodes instead.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The run's name; else numbered.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Return once the job is accepted.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print the job as it would be submitted; write nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
