// Zooming into a series: drag over a part, or use +, - and arrows; double-click or Escape shows all of it.

const UNITS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  ...[1, 2, 7, 14].map((days) => days * 86400)];
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200], MONTH = 30.44 * 86400;
const TICKS = 7;

function between(from, to, value) {
  let i = 1;
  while (i < from.length - 1 && from[i] < value) i += 1;
  const share = (value - from[i - 1]) / ((from[i] - from[i - 1]) || 1);
  return to[i - 1] + share * (to[i] - to[i - 1]);
}

function months(low, high) {
  const unit = MONTHS.find((one) => (high - low) / (one * MONTH) <= TICKS + 3) ?? MONTHS[MONTHS.length - 1], found = [];
  const begins = (month) => Date.UTC(1970, month) / 1000;
  for (let month = Math.floor(low / MONTH / unit) * unit; begins(month) <= high; month += unit) {
    if (begins(month) >= low) found.push([begins(month), new Date(begins(month) * 1000).toISOString().slice(0, 7)]);
  }
  return found;
}

function ticks(low, high, isTime) {
  const span = high - low, power = 10 ** Math.floor(Math.log10(span / TICKS));
  const unit = (isTime && span >= 1 ? UNITS : [1, 2, 5, 10].map((one) => one * power)).find((one) => span / one <= TICKS);
  if (!unit) return months(low, high);
  const found = [];
  for (let at = Math.ceil(low / unit) * unit; at <= high; at += unit) found.push(at);
  const words = (at) => {
    if (!isTime) return number(at);
    const text = new Date(at * 1000).toISOString().replace("T", " ");
    return unit >= 86400 ? text.slice(0, 10) : unit >= 60 ? text.slice(5, 16) : unit >= 1 ? text.slice(11, 19) : text.slice(11, 23);
  };
  return found.map((at) => [at, words(at)]);
}

function zoomable(svg) {
  const inner = svg.querySelector(".stretched"), names = svg.querySelector(".times"), named = "http://www.w3.org/2000/svg";
  const [places, values, [isTime]] = JSON.parse(svg.dataset.times);
  const wide = 1000, high = Number(inner.getAttribute("height")), least = Math.min(wide, 4 * wide / (places.length * 50));
  const band = document.createElementNS(named, "rect");
  let view = [0, wide], from = null;

  function show(start, size) {
    size = Math.max(least, Math.min(wide, size));
    start = Math.max(0, Math.min(wide - size, start));
    view = [start, size];
    inner.setAttribute("viewBox", `${start} 0 ${size} ${high}`);
    for (const line of all(".grid", inner)) line.remove();
    names.replaceChildren();
    const ends = [start, start + size].map((x) => between(places, values, x / wide));
    if (!(ends[1] > ends[0])) return;
    for (const [at, words] of ticks(...ends, isTime)) {
      const within = between(values, places, at) * wide, x = (within - start) / size * wide;
      if (x <= 40 || x >= wide - 40) continue;
      const text = document.createElementNS(named, "text"), line = document.createElementNS(named, "line");
      for (const [name, value] of Object.entries({ x, y: high + 17, "text-anchor": "middle" })) text.setAttribute(name, value);
      for (const [name, value] of Object.entries({ x1: within, x2: within, y1: 0, y2: high, class: "grid" })) {
        line.setAttribute(name, value);
      }
      text.textContent = words;
      names.append(text);
      inner.prepend(line);
    }
  }

  const at = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  };
  band.setAttribute("class", "chosen");
  band.setAttribute("y", 0);
  band.setAttribute("height", high);
  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    from = at(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const to = at(event);
    band.setAttribute("x", wide * Math.min(from, to));
    band.setAttribute("width", wide * Math.abs(to - from));
    svg.append(band);
  });
  svg.addEventListener("pointerup", (event) => {
    const to = at(event), low = Math.min(from ?? to, to), size = Math.abs((from ?? to) - to);
    from = null;
    band.remove();
    if (size > 0.01) show(view[0] + low * view[1], size * view[1]);
  });
  svg.addEventListener("dblclick", () => show(0, wide));
  svg.addEventListener("keydown", (event) => {
    const [start, size] = view;
    const moves = {
      "+": [start + size / 4, size / 2], "-": [start - size / 2, size * 2], Escape: [0, wide],
      ArrowRight: [start + size / 4, size], ArrowLeft: [start - size / 4, size],
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    show(...moves[event.key]);
  });
  show(0, wide);
}

function setUpTracks() {
  for (const svg of all("svg.track[data-times]")) zoomable(svg);
}
