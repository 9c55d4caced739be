"""The strangest and the most typical images as thumbnails that the page itself holds."""

from __future__ import annotations

import base64

from addml.findings import Findings, Picture
from addml.report.digest import score_words
from addml.report.markup import Html, el, joined
from addml.text import counted, text

TITLES = {"strange": "The strangest", "typical": "The most typical"}


def gallery(findings: Findings) -> Html:
    """Every picture with its file and its score; beside a strange one, what makes it strange in red."""
    score, parts = score_words(findings), []
    for kind, title in TITLES.items():
        own = [one for one in findings.pictures if one.kind == kind]
        if own:
            parts += [el("h3", title), el("ul", *(_card(one, score(one.score)) for one in own), class_="pictures")]
    if not parts:
        return Html("")
    words = f"{counted(len(findings.pictures), 'image')} as the detector saw them"
    if any(one.heat is not None for one in findings.pictures):
        words += "; in red, the places whose usual content would bring the score down"
    return joined([el("p", f"{words}.", class_="about"), *parts])


def _card(one: Picture, score: str) -> Html:
    name = text(one.name, 60)
    seen = [_image(one.image, name)]
    seen += [] if one.heat is None else [_image(one.heat, f"{name}: where its score comes from")]
    return el("li", el("span", *seen, class_="pair"), el("b", name), el("small", f"score {score}"))


def _image(content: bytes, words: str) -> Html:
    return el("img", src=f"data:image/png;base64,{base64.b64encode(content).decode()}", alt=words)
