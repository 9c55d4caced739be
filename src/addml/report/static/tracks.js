// Zooming into a series: drag over a part, or use +, - and arrows; double-click or Escape shows all of it.

const UNITS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  ...[1, 2, 7, 14].map((days) => days * 86400)];
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200], MONTH = 30.44 * 86400;
const TICKS = 7;

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

function interpolate(from, to, value) {
  let i = 1;
  while (i < from.length - 1 && from[i] < value) i += 1;
  const share = (value - from[i - 1]) / ((from[i] - from[i - 1]) || 1);
  return to[i - 1] + share * (to[i] - to[i - 1]);
}

function months(low, high) {
  const unit = MONTHS.find((count) => (high - low) / (count * MONTH) <= TICKS + 3) ?? MONTHS[MONTHS.length - 1];
  const start = (month) => Date.UTC(1970, month) / 1000, result = [];
  for (let month = Math.floor(low / MONTH / unit) * unit; start(month) <= high; month += unit) {
    if (start(month) >= low) result.push([start(month), new Date(start(month) * 1000).toISOString().slice(0, 7)]);
  }
  return result;
}

function ticks(low, high, isTime) {
  const span = high - low, power = 10 ** Math.floor(Math.log10(span / TICKS));
  const units = isTime && span >= 1 ? UNITS : [1, 2, 5, 10].map((factor) => factor * power);
  const unit = units.find((size) => span / size <= TICKS);
  if (!unit) return months(low, high);
  const label = (value) => {
    if (!isTime) return number(value);
    const text = new Date(value * 1000).toISOString().replace("T", " ");
    return unit >= 86400 ? text.slice(0, 10) : unit >= 60 ? text.slice(5, 16) : unit >= 1 ? text.slice(11, 19) : text.slice(11, 23);
  };
  const result = [];
  for (let value = Math.ceil(low / unit) * unit; value <= high; value += unit) result.push([value, label(value)]);
  return result;
}

function zoomable(svg) {
  const inner = svg.querySelector(".stretched"), labels = svg.querySelector(".times");
  const [positions, values, [isTime]] = JSON.parse(svg.dataset.times);
  const width = 1000, height = Number(inner.getAttribute("height"));
  const least = Math.min(width, 4 * width / (positions.length * 50));
  const create = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const band = create("rect");
  let view = [0, width], from = null;

  function show(start, size) {
    size = Math.max(least, Math.min(width, size));
    start = Math.max(0, Math.min(width - size, start));
    view = [start, size];
    inner.setAttribute("viewBox", `${start} 0 ${size} ${height}`);
    for (const line of all(".grid", inner)) line.remove();
    labels.replaceChildren();
    const ends = [start, start + size].map((x) => interpolate(positions, values, x / width));
    if (!(ends[1] > ends[0])) return;
    for (const [value, label] of ticks(...ends, isTime)) {
      const position = interpolate(values, positions, value) * width, x = (position - start) / size * width;
      if (x <= 40 || x >= width - 40) continue;
      const text = create("text"), line = create("line");
      setAttributes(text, { x, y: height + 17, "text-anchor": "middle" });
      setAttributes(line, { x1: position, x2: position, y1: 0, y2: height, class: "grid" });
      text.textContent = label;
      labels.append(text);
      inner.prepend(line);
    }
  }

  const shareOf = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  };
  setAttributes(band, { class: "chosen", y: 0, height });
  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    from = shareOf(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const to = shareOf(event);
    setAttributes(band, { x: width * Math.min(from, to), width: width * Math.abs(to - from) });
    svg.append(band);
  });
  svg.addEventListener("pointerup", (event) => {
    const to = shareOf(event), low = Math.min(from ?? to, to), size = Math.abs((from ?? to) - to);
    from = null;
    band.remove();
    if (size > 0.01) show(view[0] + low * view[1], size * view[1]);
  });
  svg.addEventListener("dblclick", () => show(0, width));
  svg.addEventListener("keydown", (event) => {
    const [start, size] = view;
    const moves = {
      "+": [start + size / 4, size / 2], "-": [start - size / 2, size * 2], Escape: [0, width],
      ArrowRight: [start + size / 4, size], ArrowLeft: [start - size / 4, size],
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    show(...moves[event.key]);
  });
  show(0, width);
}

function setUpTracks() {
  for (const svg of all("svg.track[data-times]")) zoomable(svg);
}
