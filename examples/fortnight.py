"""A fortnight of daily files, generated: what `addml diff` reports each morning.

    python examples/fortnight.py

writes four weeks of history, fourteen days and a file of known rows into the folder `fortnight`, and prints the
commands to run. Three stores report customers and sales per till and hour. On days 3 and 10 there is a market in Turin,
on day 6 deliveries are in kilometres instead of miles, on day 9 the third till of each store records no sales in the
afternoon, and on day 12 Bergen falls by 80 %, to figures that are ordinary in Lisbon. docs/command-line.md shows the
output of day 6.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

HEADER = ("store", "receipt", "till", "hour", "customers", "sales", "delivery_miles", "payment")
STORES = {"Bergen": (60, 15.0), "Lisbon": (25, 12.0), "Turin": (12, 10.0)}  # customers per hour, sales per customer
KNOWN = """\
[[known]]
when = "store = Turin and till = 4 and customers > 25"
reason = "market on the square, every Wednesday"
expires = 2099-12-31
score = 3.0
"""


def day(number: int, random: np.random.Generator) -> list[dict[str, Any]]:
    """The rows of a day: 3 stores, 4 tills, 10 hours."""
    return [
        _row(number, store, till, hour, random) for store in STORES for till in range(1, 5) for hour in range(9, 19)
    ]


def _row(number: int, store: str, till: int, hour: int, random: np.random.Generator) -> dict[str, Any]:
    per_hour, sales_per_customer = STORES[store]
    noon_peak = 1 + 0.5 * np.exp(-(((hour - 13) / 2) ** 2))
    customers, miles = float(random.poisson(per_hour * noon_peak)), random.gamma(8, 0.6)
    sales = customers * sales_per_customer * random.normal(1, 0.06)
    payment = str(random.choice(["card", "cash", "phone"], p=[0.6, 0.3, 0.1]))
    if number in (3, 10) and store == "Turin" and till == 4 and hour < 13:
        customers, sales = 3 * customers, 3 * sales
    if number == 6:
        miles *= 1.609
    if number == 9 and till == 3 and hour in (15, 16, 17):
        sales = 0
    if number == 12 and store == "Bergen":
        customers, sales = 0.2 * customers, 0.2 * sales
    figures = (round(customers), round(sales, 2), round(miles, 2))
    values = (store, f"{store[0]}{number}-{till}-{hour}", till, f"{hour:02}:00", *figures, payment)
    return dict(zip(HEADER, values, strict=True))


def write(folder: Path) -> None:
    """Write all files."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(2026)
    _write(folder / "history.csv", (row for number in range(-27, 1) for row in day(number, random)))
    for number in range(1, 15):
        _write(folder / f"day-{number:02}.csv", day(number, random))
    (folder / "known.toml").write_text(KNOWN)


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    write(Path("fortnight"))
    print("cd fortnight\naddml fit history.csv --by store --id receipt --alarm-rate 0.005 --model shops")
    for today in range(2, 15):
        known = " --known-normal known.toml" if today > 3 else ""  # written on day 3
        print(f"addml diff shops day-{today - 1:02}.csv day-{today:02}.csv{known}")
