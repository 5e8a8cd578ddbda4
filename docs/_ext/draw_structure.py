"""Draws the folders of the package and their imports, from the import statements, as SVG.

python docs/_ext/draw_structure.py      # writes docs/development/structure.html
"""

from __future__ import annotations

import ast
import html
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "esbench"
TARGET = HERE.parent / "development" / "structure.html"
WIDTH, HEIGHT, ACROSS, DOWN = 118, 44, 24, 46
STYLE = """
.structure rect { fill: var(--color-background-secondary); stroke: var(--color-brand-primary); }
.structure text { fill: var(--color-foreground-primary); text-anchor: middle; font-size: 13px; }
.structure text.lines { fill: var(--color-foreground-secondary); font-size: 11px; }
.structure path { fill: none; stroke: var(--color-foreground-muted); stroke-width: 1.2; }
.structure marker path { fill: var(--color-foreground-muted); stroke: none; }
"""

Graph = dict[str, set[str]]


def main() -> None:
    """Write the picture."""
    TARGET.write_text(picture(PACKAGE), encoding="utf-8")


def picture(package: Path) -> str:
    """The picture of a package, as a fragment of HTML."""
    graph, lines = imports(package)
    rows = ordered(layers(graph), graph)
    width = max(map(len, rows)) * (WIDTH + ACROSS)
    places = {
        name: (
            width / 2 + (column - (len(row) - 1) / 2) * (WIDTH + ACROSS),
            number * (HEIGHT + DOWN) + HEIGHT / 2 + 2,
        )
        for number, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    height = len(rows) * (HEIGHT + DOWN) - DOWN + 4
    parts = [arrow(places[a], places[b]) for a, to in reduced(graph).items() for b in sorted(to)]
    parts += [box(name, lines[name], *place) for name, place in places.items()]
    label = html.escape("Folders of esbench and their imports")
    return (
        f'<div class="structure"><style>{STYLE}</style>'
        f'<svg viewBox="0 0 {width:.0f} {height}" role="img" aria-label="{label}">'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>'
        f"{''.join(parts)}</svg></div>\n"
    )


def imports(package: Path) -> tuple[Graph, dict[str, int]]:
    """Which folder imports which, and the number of lines in each."""
    graph: Graph = {}
    lines: dict[str, int] = {}
    for path in sorted(package.rglob("*.py")):
        owner = path.relative_to(package).parts[0]
        if owner == path.name:  # a module at the top
            continue
        text = path.read_text(encoding="utf-8")
        lines[owner] = lines.get(owner, 0) + text.count("\n")
        targets = {name for name in imported(text, package.name) if (package / name).is_dir()}
        graph.setdefault(owner, set()).update(targets - {owner})
    return graph, lines


def imported(text: str, package: str) -> Iterator[str]:
    """The folders and modules at the top of the package that a file imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        # "from package import name" may name a module; everything else names one by itself.
        for module in modules if modules[0] == package else modules[:1]:
            root, _, rest = module.partition(".")
            if root == package and rest:
                yield rest.partition(".")[0]


def layers(graph: Graph) -> list[list[str]]:
    """The boxes in rows: each below all that import it, and as high as that allows.

    A box that nothing imports is as low as its own imports allow.

    Raises:
        ValueError: the imports have a cycle.
    """
    height = dict.fromkeys(graph, 0)
    for _ in graph:
        for name, targets in graph.items():
            height[name] = max([height[name], *(height[target] + 1 for target in targets)])
    top = max(height.values())
    if top >= len(graph):
        raise ValueError("the imports of the package have a cycle")
    row: dict[str, int] = {}
    for name in sorted(graph, key=height.__getitem__, reverse=True):
        above = [row[other] + 1 for other in row if name in graph[other]]
        row[name] = max(above) if above else top - height[name]
    return [[n for n in sorted(graph) if row[n] == number] for number in range(top + 1)]


def ordered(rows: list[list[str]], graph: Graph) -> list[list[str]]:
    """The same rows, each sorted by where its importers are, so that fewer arrows cross."""
    position: dict[str, float] = {}
    result = []
    for row in rows:
        above = {
            name: [position[other] for other in position if name in graph[other]] for name in row
        }
        centers = {name: sum(at) / (len(at) or 1) for name, at in above.items()}
        placed = sorted(row, key=centers.__getitem__)
        position |= {name: i - (len(placed) - 1) / 2 for i, name in enumerate(placed)}
        result.append(placed)
    return result


def reduced(graph: Graph) -> Graph:
    """The graph without the edges that follow from others."""
    reach = {name: reachable(graph, name) for name in graph}
    return {
        name: {b for b in targets if not any(b in reach[other] for other in targets - {b})}
        for name, targets in graph.items()
    }


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Everything that can be reached from a box."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for target in graph[waiting.pop()] - found:
            found.add(target)
            waiting.append(target)
    return found


def box(name: str, lines: int, x: float, y: float) -> str:
    """A box with a name and its number of lines."""
    left, top = x - WIDTH / 2, y - HEIGHT / 2
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
        f'<text x="{x:.1f}" y="{y - 2:.1f}">{html.escape(name)}</text>'
        f'<text class="lines" x="{x:.1f}" y="{y + 14:.1f}">{lines:,}</text>'
    )


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve from the bottom of one box to the top of another."""
    (x0, y0), (x1, y1) = start, end
    y0, y1 = y0 + HEIGHT / 2, y1 - HEIGHT / 2 - 1
    bend = (y1 - y0) / 2
    path = (
        f"M{x0:.1f},{y0:.1f} C{x0:.1f},{y0 + bend:.1f} {x1:.1f},{y1 - bend:.1f} {x1:.1f},{y1:.1f}"
    )
    return f'<path d="{path}" marker-end="url(#head)"/>'


if __name__ == "__main__":
    main()
