"""The terminal view of fleet, queues, what waits and what runs; the screens of `muster top`."""

from __future__ import annotations

# Textual's apps and tables are generic in what nobody asks of them.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Header, Input, Static, TabbedContent, TabPane
from textual.widgets.data_table import RowDoesNotExist

from muster.answers.documents import fleet_document, queue_document
from muster.answers.forecast import Budget
from muster.answers.times import instant, span
from muster.answers.view import View
from muster.answers.why import why
from muster.cli.queue import end_of, note_of, starts_of
from muster.cli.why import show_why
from muster.errors import MusterError

MOST = 500
"""Rows a table at most: nobody reads more, and they are drawn on each change."""

LOOKS_EVERY_S = 2.0

Row = tuple[str, list[str]]
"""A key (the job's name) and cells."""

TABLES: dict[str, tuple[str, ...]] = {
    "waiting": ("#", "job", "queue", "GPUs", "waited", "waits for", "starts in", "80 % within", "borrows"),
    "running": ("job", "queue", "GPUs", "ran", "done", "checkpoint", "ends in", "note"),
    "queues": ("queue", "flavor", "guaranteed", "fair", "used", "borrowed", "lent", "available", "waiting"),
    "fleet": ("flavor", "nodes", "closed", "GPUs", "allocated", "free", "on whole nodes", "closed GPUs", "unhealthy"),
}


class Why(Screen[None]):
    """Why one job waits, in the words of `muster why`."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,backspace", "app.pop_screen", "back")]

    def __init__(self, job: str, view: View) -> None:
        super().__init__()
        self.job = job
        self.view = view

    def compose(self) -> ComposeResult:
        """A page that scrolls."""
        yield Header()
        with VerticalScroll():
            yield Static(f"Why {self.job} ...", id="text", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """The answer takes a moment: it is worked out beside the screen."""
        self.title = f"why {self.job}"
        self._ask()

    @work(thread=True, exclusive=True)
    def _ask(self) -> None:
        try:
            text = why_text(self.view, self.job)
        except MusterError as error:
            text = str(error)
        self.app.call_from_thread(self.query_one("#text", Static).update, text)


def why_text(view: View, job: str) -> str:
    """What `muster why` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        show_why(view, why(view, job, budget=Budget()))
    return out.getvalue()


class TopApp(App[None]):
    """Fleet, queues, what waits with its reasons, and what runs; drawn anew when the source changes."""

    TITLE = "muster top"
    CSS = "DataTable { height: 1fr; } #filter { display: none; dock: bottom; } #head { height: auto; padding: 0 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "show('waiting')", "waiting"),
        Binding("2", "show('running')", "running"),
        Binding("3", "show('queues')", "queues"),
        Binding("4", "show('fleet')", "fleet"),
        Binding("slash", "filter", "filter"),
        Binding("r", "look", "refresh"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, latest: Callable[[], View]) -> None:
        super().__init__()
        self._latest = latest
        self._view: View | None = None
        self._rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self._wanted = ""
        self._looking = False

    @property
    def _tables(self) -> Screen[Any]:
        """The screen with the tables, whichever lies on it."""
        return self.screen_stack[0]

    def compose(self) -> ComposeResult:
        """A headline, a tab for each table, and a line to filter by."""
        yield Header()
        yield Static("reading ...", id="head", markup=False)
        with TabbedContent(initial="waiting"):
            for name in TABLES:
                with TabPane(name.capitalize(), id=name):
                    yield DataTable[Text](id=f"table-{name}", cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="part of a job or queue; Enter keeps it, Escape clears it", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Look now, and then again and again."""
        for name, titles in TABLES.items():
            self._table(name).add_columns(*titles)
        self.set_interval(LOOKS_EVERY_S, self.action_look)
        self.action_look()
        self._table("waiting").focus()

    def action_show(self, name: str) -> None:
        """Go to a table, from wherever one is."""
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self._tables.query_one(TabbedContent).active = name
        self._table(name).focus()

    def action_filter(self) -> None:
        """Show the line to filter by."""
        if len(self.screen_stack) > 1:
            return
        line = self._tables.query_one("#filter", Input)
        line.display = True
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Only rows with this text are shown."""
        self._wanted = event.value.lower()
        self._fill()

    def on_input_submitted(self) -> None:
        """The filter stays, and the table is moved in again."""
        self._table(self._tables.query_one(TabbedContent).active).focus()

    def key_escape(self) -> None:
        """Away with the filter."""
        line = self._tables.query_one("#filter", Input)
        line.value, line.display = "", False
        self._table(self._tables.query_one(TabbedContent).active).focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter on a job: why."""
        if event.data_table.id in ("table-waiting", "table-running") and self._view is not None:
            self.push_screen(Why(str(event.row_key.value), self._view))

    def action_look(self) -> None:
        """Read the source if it has changed, unless that is being done already."""
        if not self._looking:
            self._looking = True
            self._look()

    @work(thread=True)
    def _look(self) -> None:
        """What is wrong with the source is told in the headline, and what was read before stays."""
        try:
            view = self._latest()
            if view is not self._view:
                rows, head = rows_of(view), headline(view)
                self.call_from_thread(self._take, view, rows, head)
        except MusterError as error:
            self.call_from_thread(self._tables.query_one("#head", Static).update, str(error))
        finally:
            self._looking = False

    def _take(self, view: View, rows: dict[str, list[Row]], head: str) -> None:
        self._view, self._rows = view, rows
        self._tables.query_one("#head", Static).update(head)
        self._fill()

    def _fill(self) -> None:
        for name in TABLES:
            table = self._table(name)
            at = _key_at(table)
            table.clear()
            for key, cells in self._rows[name]:
                if not self._wanted or any(self._wanted in cell.lower() for cell in cells):
                    table.add_row(*map(Text, cells), key=key)
            if at is not None:
                with contextlib.suppress(RowDoesNotExist):
                    table.move_cursor(row=table.get_row_index(at))

    def _table(self, name: str) -> DataTable[Text]:
        return self._tables.query_one(f"#table-{name}", DataTable)


def _key_at(table: DataTable[Text]) -> str | None:
    if not table.row_count:
        return None
    return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value


def headline(view: View) -> str:
    """The fleet and the line in one sentence."""
    parts = fleet_document(view)["flavors"]

    def total(key: str) -> float:
        return sum(each[key] for each in parts) / 1000

    gpus, used, free = total("gpu_milli"), total("allocated_milli"), total("free_milli")
    scheduler = view.scheduler
    share = f" ({used / gpus:.0%})" if gpus else ""
    whole = f"{total('whole_free_milli'):,g} of these on whole nodes"
    work = f"{len(scheduler.running):,} gangs run, {len(scheduler.pending):,} wait"
    return f"{gpus:,g} GPUs: {used:,g} allocated{share}, {free:,g} free, {whole}.  {work}.  At {instant(view.now_s)}."


def rows_of(view: View) -> dict[str, list[Row]]:
    """The rows of all tables."""
    document = queue_document(view, most=MOST)
    return {
        "waiting": [(each["job"], _waiting(view, each)) for each in document["waiting"]],
        "running": [(each["job"], _running(view, each)) for each in document["running"]],
        "queues": [(f"{each['queue']} {each['flavor']}", _queue(each)) for each in document["queues"]],
        "fleet": [(each["flavor"], _flavor(each)) for each in fleet_document(view)["flavors"]],
    }


def _waiting(view: View, each: Mapping[str, Any]) -> list[str]:
    return [
        f"{each['position']:,}", each["job"], each["queue"], _gpus(each["gpu_milli"]), span(each["waited_s"]),
        each["cause"], *starts_of(view, each), "yes" if each["borrows"] else "",
    ]  # fmt: skip


def _running(view: View, each: Mapping[str, Any]) -> list[str]:
    return [
        each["job"], each["queue"], _gpus(each["gpu_milli"]), "" if each["ran_s"] is None else span(each["ran_s"]),
        "" if each["progress"] is None else f"{each['progress']:.0%}",
        "none" if each["unsaved_s"] is None else f"{span(each['unsaved_s'])} old",
        end_of(view, each), note_of(each),
    ]  # fmt: skip


def _queue(each: Mapping[str, Any]) -> list[str]:
    amounts: Sequence[str] = ("guaranteed", "fair", "used", "borrowed", "lent", "available")
    waits = f"{each['waiting']:,} ({_gpus(each['waiting_milli'])})" if each["waiting"] else ""
    name = "  " * each["depth"] + each["queue"]
    return [name, each["flavor"], *(_gpus(each[f"{key}_milli"]) for key in amounts), waits]


def _flavor(each: Mapping[str, Any]) -> list[str]:
    amounts = ("gpu_milli", "allocated_milli", "free_milli", "whole_free_milli", "closed_milli", "unhealthy_milli")
    nodes = [f"{each['nodes']:,}", f"{each['closed_nodes']:,}"]
    return [each["flavor"], *nodes, *(_gpus(each[key]) for key in amounts)]


def _gpus(milli: float) -> str:
    return f"{milli / 1000:,g}"
