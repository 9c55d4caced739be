"""A CSV as people have them, with six anomalies of three kinds planted in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROWS = 2000
COLUMNS = "Bestellung;Datum;Land;Kanal;Betrag;Stück;Gewicht;Porto;Stammkunde;Rabatt;Bemerkung"
REMARKS = ("", "", "bitte klingeln", 'Karte: "Alles Gute"', "Hinterhaus; 3. Stock", "nicht vor 10 Uhr")
BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


def write_messy(path: Path, seed: int = 20261115) -> dict[int, str]:
    """Write the file: BOM, semicolons, decimal commas, dates, categories, gaps, quoted text, CRLF.

    Gives back the rows planted, counted from 1, with their kind.
    """
    random = np.random.default_rng(seed)
    orders = [_order(random, number) for number in range(ROWS)]
    planted = _plant(orders, random)
    lines = [COLUMNS, *(";".join(map(_cell, order.values())) for order in orders)]
    path.write_bytes((BOM + "\r\n".join(lines) + "\r\n").encode("utf-8"))
    return planted


def _order(random: np.random.Generator, number: int) -> dict[str, object]:
    weight = float(random.gamma(3, 1.2)) + 0.1
    day, minute = random.integers(0, 365), random.integers(8 * 60, 20 * 60)
    when = np.datetime64("2025-01-01T00:00") + np.timedelta64(int(day) * 1440 + int(minute), "m")
    return {
        "id": f"B-{700_000 + 7 * number}",
        "when": when.item().strftime("%d.%m.%Y %H:%M"),
        "country": str(random.choice(["DE", "AT", "CH", "NL"], p=[0.6, 0.2, 0.12, 0.08])),
        "channel": str(random.choice(["Web", "Laden", "Telefon"], p=[0.7, 0.2, 0.1])),
        "amount": float(random.lognormal(3.6, 0.5)),
        "items": int(random.integers(1, 6)),
        "weight": weight,
        "postage": 2.9 + 1.4 * weight + float(random.normal(0, 0.15)),
        "regular": "ja" if random.random() < 0.35 else "nein",
        "discount": None if random.random() < 0.1 else float(random.choice([0.0, 5.0, 10.0])),
        "remark": str(random.choice(REMARKS)),
    }


def _plant(orders: list[dict[str, object]], random: np.random.Generator) -> dict[int, str]:
    """Two amounts far out, two values never seen, two rows that break the rule of postage by weight."""
    places = [int(place) for place in random.choice(ROWS, 6, replace=False)]
    orders[places[0]]["amount"], orders[places[1]]["amount"] = 1890.0, 2450.5
    orders[places[2]]["country"], orders[places[3]]["channel"] = "KP", "Fax"
    orders[places[4]] |= {"weight": 9.5, "postage": 4.1}
    orders[places[5]] |= {"weight": 0.4, "postage": 15.2}
    kinds = ["amount", "amount", "unseen", "unseen", "postage", "postage"]
    return {place + 1: kind for place, kind in zip(places, kinds, strict=True)}


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2f}".replace(".", ",")
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(';"') else text
