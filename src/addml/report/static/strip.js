// Which ranked rows were left out of training, and when, on a canvas.

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

function drawDropped() {
  const place = find("#dropped"), found = data.dropped;
  if (!place || !found) return;
  const prepare = surface(place), { epochs, cells } = found;
  const tall = Math.max(4, Math.min(17, Math.floor(640 / cells.length)));
  const below = 26, above = tall < 11 ? 6 : 0, every = tall >= 11 ? 1 : tall >= 7 ? 2 : 10;
  const names = data.ranked.slice(0, cells.length).map((one) => `${one.rank} · ${data.noun} ${number(one.row)}`);
  let wide = 1, left = 84, here = null;

  function draw() {
    const { context, width } = prepare(above + cells.length * tall + below);
    context.font = font(11);
    left = Math.min(width / 3, Math.max(...names.map((name) => context.measureText(name).width)) + 10);
    wide = (width - left) / epochs.length;
    const gap = wide > 6 ? 1 : 0, line = tall > 7 ? 1 : 0;
    const accent = color("accent"), kept = color("faint");
    cells.forEach((row, r) => row.forEach((cell, c) => {
      if (cell === null) return; // not in the training sample
      const box = [left + c * wide, above + r * tall, wide - gap, tall - line];
      context.fillStyle = kept;
      context.globalAlpha = 1;
      context.fillRect(...box);
      if (!cell) return;
      context.fillStyle = accent;
      context.globalAlpha = 0.12 + 0.8 * cell / 100;
      context.fillRect(...box);
    }));
    context.globalAlpha = 1;
    labels(context, width);
    if (here) {
      context.strokeStyle = color("ink");
      context.lineWidth = 1.5;
      context.strokeRect(left + here[1] * wide, above + here[0] * tall, wide - gap, tall - line);
    }
  }

  function labels(context, width) {
    context.font = font(11);
    context.fillStyle = color("muted");
    context.textBaseline = "middle";
    context.textAlign = "right";
    names.forEach((name, r) => {
      if (r % every === 0) context.fillText(name, left - 8, above + r * tall + tall / 2, left - 10);
    });
    const steps = Math.max(1, Math.ceil(epochs.length / Math.max(1, Math.floor((width - left) / 60))));
    const nice = [1, 2, 5, 10, 20, 25, 50, 100].find((step) => step >= steps) || steps;
    context.textAlign = "center";
    epochs.forEach((epoch, c) => {
      if (c !== 0 && epoch % nice) return;
      if (c !== 0 && nice > 1 && epoch < nice) return;
      context.fillText(epoch, left + (c + 0.5) * wide, above + cells.length * tall + 12);
    });
    context.textAlign = "right";
    context.fillText("epoch", left - 8, above + cells.length * tall + 12);
    const last = data.ranked.slice(0, cells.length).findIndex((one) => !one.anomaly);
    if (last > 0) {
      context.fillStyle = color("ink");
      context.fillRect(0, above + last * tall - 1, width, 1);
    }
  }

  function say(r, c) {
    here = r === null ? null : [r, c];
    draw();
    if (!here) return hideTip();
    const frame = place.getBoundingClientRect(), one = data.ranked[r], cell = cells[r][c];
    const ends = { 0: "used by every member", 100: "left out by every member" };
    const how = cell === null ? "not in the training sample" : ends[cell] || `left out by ${cell}% of members`;
    const at = [frame.left + left + (c + 0.5) * wide, frame.top + above + (r + 0.5) * tall];
    showTip(...at, `${rowName(one.row)}, rank ${one.rank}`, [`epoch ${epochs[c]}: ${how}`]);
  }

  place.addEventListener("pointermove", (event) => {
    const frame = place.getBoundingClientRect();
    const r = Math.floor((event.clientY - frame.top - above) / tall);
    const c = Math.floor((event.clientX - frame.left - left) / wide);
    const inside = r >= 0 && r < cells.length && c >= 0 && c < epochs.length;
    if (inside) say(r, c);
    else if (here) say(null);
  });
  place.addEventListener("pointerleave", () => say(null));
  place.addEventListener("blur", () => say(null));
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (event.key === "Escape") say(null);
    if (!step) return;
    event.preventDefault();
    const [r, c] = here || [0, 0], keep = (value, most) => Math.min(most - 1, Math.max(0, value));
    say(here ? keep(r + step[0], cells.length) : 0, here ? keep(c + step[1], epochs.length) : 0);
  });
  charts.push({ draw, place });
}
