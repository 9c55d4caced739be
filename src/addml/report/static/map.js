// The map of the metric space, on a canvas.

// Canvas charts ---------------------------------------------------------------------------------------------

function surface(place) {
  const canvas = place.appendChild(document.createElement("canvas"));
  canvas.setAttribute("aria-hidden", "true");
  return function prepare(height) {
    const width = place.clientWidth, tall = height || place.clientHeight, ratio = devicePixelRatio;
    if (height) canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    return { context, width, height: tall };
  };
}

// The map ---------------------------------------------------------------------------------------------------

function drawMap() {
  const place = find("#space"), points = data.space;
  if (!place || !points) return;
  const prepare = surface(place), count = points.x.length;
  const xs = [...points.x, points.center[0]].filter((value) => value !== null);
  const ys = [...points.y, points.center[1]].filter((value) => value !== null);
  const wider = ([low, high], value) => [Math.min(low, value), Math.max(high, value)];
  const reach = (values) => values.reduce(wider, [Infinity, -Infinity]);
  const [left, right] = reach(xs), [bottom, top] = reach(ys);
  const home = { x: (left + right) / 2, y: (bottom + top) / 2, zoom: 1 };
  const view = { ...home };
  const byRank = [...points.rank.keys()].filter((i) => points.rank[i]).sort((a, b) => points.rank[a] - points.rank[b]);
  let box = { width: 1, height: 1 }, active = -1;

  const fit = (room, span) => (room - 56) / (span || 1);
  const unit = () => view.zoom * Math.min(fit(box.width, right - left), fit(box.height, top - bottom));
  const at = (x, y) => [box.width / 2 + (x - view.x) * unit(), box.height / 2 - (y - view.y) * unit()];

  function dot(context, i, radius) {
    const [x, y] = at(points.x[i], points.y[i]);
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    context.fill();
    return [x, y];
  }

  function draw() {
    const made = prepare();
    box = made;
    const { context } = made, small = count > 1500 ? 1.9 : 2.8;
    context.fillStyle = color("normal");
    context.globalAlpha = count > 1500 ? 0.4 : 0.55;
    for (let i = 0; i < count; i++) if (!points.anomaly[i]) dot(context, i, small);
    context.globalAlpha = 0.92;
    context.strokeStyle = color("card");
    context.lineWidth = 1;
    context.fillStyle = color("accent");
    for (let i = count - 1; i >= 0; i--) {
      if (!points.anomaly[i]) continue;
      dot(context, i, points.rank[i] ? 4.5 : 3);
      if (points.rank[i]) context.stroke();
    }
    context.globalAlpha = 1;
    drawCenter(context);
    drawRanks(context);
    if (active >= 0) ring(context, active);
  }

  function drawCenter(context) {
    if (points.center[0] === null || points.center[1] === null) return;
    const [x, y] = at(...points.center);
    for (const [name, width] of [["card", 5], ["ink", 2]]) {
      context.strokeStyle = color(name);
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(x - 9, y);
      context.lineTo(x + 9, y);
      context.moveTo(x, y - 9);
      context.lineTo(x, y + 9);
      context.stroke();
    }
  }

  function drawRanks(context) {
    context.font = font(11.5, 650);
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.textAlign = "center";
    context.lineWidth = 3;
    context.strokeStyle = color("card");
    context.fillStyle = color("ink");
    const taken = byRank.map((i) => at(points.x[i], points.y[i]));
    for (const i of byRank.filter((one) => points.anomaly[one]).slice(0, 10)) {
      const [x, y] = at(points.x[i], points.y[i]), own = [x, y].join();
      const places = [[11, -7], [-11, -7], [11, 8], [-11, 8], [0, -13], [0, 14]].map(([dx, dy]) => [x + dx, y + dy]);
      const near = ([px, py], other) => other.join() !== own && Math.hypot(px - other[0], py - other[1]) < 13;
      const crowd = (place) => taken.filter((other) => near(place, other)).length;
      const best = places.reduce((one, other) => (crowd(other) < crowd(one) ? other : one));
      taken.push(best);
      context.strokeText(points.rank[i], ...best);
      context.fillText(points.rank[i], ...best);
    }
  }

  function ring(context, i) {
    const [x, y] = at(points.x[i], points.y[i]);
    context.strokeStyle = color("ink");
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, 8, 0, 7);
    context.stroke();
  }

  function say(i) {
    if (i !== active) {
      active = i;
      draw();
    }
    if (i < 0) return hideTip();
    const [x, y] = at(points.x[i], points.y[i]), frame = place.getBoundingClientRect();
    const one = ranked.get(points.rank[i]);
    const title = rowName(points.row[i]) + (one ? `, rank ${one.rank}` : "");
    const kind = points.anomaly[i] ? [] : ["not flagged"];
    const lines = [`score ${one ? one.score : number(points.score[i])}`, ...kind, ...(one ? one.why : [])];
    showTip(frame.left + x, frame.top + y, title, lines);
  }

  function nearest(event) {
    const frame = place.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
    let best = -1, least = 14 * 14;
    for (let i = 0; i < count; i++) {
      const [px, py] = at(points.x[i], points.y[i]);
      const far = (px - x) ** 2 + (py - y) ** 2 - (points.anomaly[i] ? 30 : 0);
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }

  let held = null, moved = false;
  place.addEventListener("pointerdown", (event) => {
    held = [event.clientX, event.clientY];
    moved = false;
  });
  addEventListener("pointerup", () => { held = null; });
  place.addEventListener("pointermove", (event) => {
    if (!held || view.zoom === 1) return say(nearest(event));
    moved = moved || Math.hypot(event.clientX - held[0], event.clientY - held[1]) > 3;
    view.x -= (event.clientX - held[0]) / unit();
    view.y += (event.clientY - held[1]) / unit();
    held = [event.clientX, event.clientY];
    draw();
  });
  place.addEventListener("pointerleave", () => say(-1));
  place.addEventListener("blur", () => say(-1));
  place.addEventListener("click", (event) => {
    const i = nearest(event);
    if (!moved && i >= 0 && points.rank[i]) goToRow(points.rank[i]);
  });
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") say(-1);
    if (event.key === "Enter" && active >= 0 && points.rank[active]) goToRow(points.rank[active]);
    if (!step || !byRank.length) return;
    event.preventDefault();
    const next = byRank.indexOf(active) + step;
    say(byRank[Math.min(byRank.length - 1, Math.max(0, next))]);
  });
  for (const button of all("[data-zoom]")) {
    button.addEventListener("click", () => {
      const how = button.dataset.zoom;
      if (how === "all") Object.assign(view, home);
      else view.zoom = Math.max(1, view.zoom * (how === "in" ? 1.6 : 1 / 1.6));
      if (how === "in" && view.zoom < 1.7 && points.center[0] !== null) [view.x, view.y] = points.center;
      if (view.zoom === 1) Object.assign(view, home);
      draw();
    });
  }
  charts.push({ draw, place });
}
