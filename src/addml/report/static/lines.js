// Lines and bars, by uPlot.

function axis(extra = {}) {
  return {
    stroke: () => color("muted"), font: font(12), grid: { stroke: () => color("line"), width: 1 },
    ticks: { show: false }, gap: 6, size: 30, ...extra,
  };
}

const wholeOnly = (value) => (Number.isInteger(value) ? number(value) : "");

// Draws a chart in `place`. `options()` returns uPlot's options, `tipText(index)` a title and lines for the tooltip.
function plot(place, values, options, tipText) {
  let chart = null;
  const size = () => ({ width: Math.max(120, place.clientWidth), height: place.clientHeight });

  function hover(u) {
    if (u.cursor.idx === null || u.cursor.idx === undefined || u.cursor.left < 0) return hideTip();
    if (!place.matches(":hover") && document.activeElement !== place) return;
    const text = tipText(u.cursor.idx);
    if (!text) return hideTip();
    const box = u.over.getBoundingClientRect();
    showTip(box.left + u.cursor.left, box.top + Math.max(0, u.cursor.top), text[0], text.slice(1));
  }

  function draw() {
    if (chart) chart.destroy();
    const { hooks = {}, cursor = {}, ...rest } = options();
    chart = new uPlot({
      ...size(), legend: { show: false }, padding: [12, 12, 0, 0], ...rest,
      cursor: { y: false, drag: { setScale: false, x: false, y: false }, points: { show: false }, ...cursor },
      hooks: { ...hooks, setCursor: [hover] },
    }, values(), place);
    chart.root.setAttribute("aria-hidden", "true");
    chart.over.addEventListener("mouseleave", hideTip);
  }

  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") hideTip();
    if (!step || !chart) return;
    event.preventDefault();
    const x = chart.data[0], last = x.length - 1;
    const now = chart.cursor.idx ?? (step > 0 ? -1 : last + 1);
    const index = Math.min(last, Math.max(0, now + step));
    chart.setCursor({ left: chart.valToPos(x[index], "x"), top: chart.over.clientHeight / 3 });
  });
  place.addEventListener("blur", hideTip);
  charts.push({ draw, place });
  return draw;
}

// Scores ----------------------------------------------------------------------------------------------------

function drawScores() {
  const place = find("#scores"), histogram = data.scores;
  if (!place || !histogram) return;
  const { edges, counts, first_anomalous: first } = histogram;
  const centers = counts.map((_, i) => (edges[i] + edges[i + 1]) / 2);
  const pick = (keep) => counts.map((count, i) => (count && keep(i) ? count : null));
  const values = () => [centers, pick((i) => i < first), pick((i) => i >= first)];
  const bars = (name) => ({
    fill: () => color(name), stroke: "transparent", width: 0, points: { show: false },
    paths: uPlot.paths.bars({ size: [1, Infinity], gap: 1, radius: [0.12, 0], align: 0 }),
  });
  const most = Math.max(1, ...counts);
  const log = { distr: 100, fwd: Math.log1p, bwd: Math.expm1, range: [0, most * 1.35] };
  const powers = [0, ...Array.from({ length: 12 }, (_, i) => 10 ** i)];
  const short = (value) => {
    if (value >= 1e6) return number(value / 1e6) + " M";
    return value >= 1e4 ? number(value / 1e3) + " k" : number(value);
  };

  function threshold(u) {
    const value = data.threshold;
    if (value === null || value < edges[0] || value > edges[edges.length - 1]) return;
    const x = Math.round(u.valToPos(value, "x", true)), ratio = devicePixelRatio, { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = color("ink");
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    ctx.lineWidth = ratio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.font = font(12 * ratio, 600);
    ctx.fillStyle = color("ink");
    const text = "threshold " + number(value, 3), width = ctx.measureText(text).width + 8 * ratio;
    const isRight = x + width < bbox.left + bbox.width;
    ctx.textAlign = isRight ? "left" : "right";
    ctx.fillText(text, x + (isRight ? 6 : -6) * ratio, bbox.top + 10 * ratio);
    ctx.restore();
  }

  const options = () => ({
    scales: {
      x: { time: false, range: [edges[0], edges[edges.length - 1]] },
      y: histogram.log ? log : { range: [0, most * 1.12] },
    },
    axes: [
      axis({ values: (_, splits) => splits.map((value) => number(value)), grid: { show: false } }),
      axis({
        size: 48, values: (_, splits) => splits.map((value) => (Number.isInteger(value) ? short(value) : "")),
        ...(histogram.log ? { splits: () => powers.filter((value) => value <= most * 1.35) } : {}),
      }),
    ],
    series: [{}, bars("normal"), bars("accent")],
    hooks: { draw: [threshold] },
  });

  const tipText = (i) => {
    const last = counts.length - 1;
    const where = i === last && histogram.above ? `above ${number(edges[i], 3)}`
      : i === 0 && histogram.below ? `up to ${number(edges[1], 3)}`
        : `${number(edges[i], 3)} to ${number(edges[i + 1], 3)}`;
    return [rows(counts[i]), `score ${where}`, i >= first ? "flagged" : "normal"];
  };

  const draw = plot(place, values, options, tipText);
  const button = find("#log");
  button.setAttribute("aria-pressed", String(histogram.log));
  button.addEventListener("click", () => {
    histogram.log = !histogram.log;
    button.setAttribute("aria-pressed", String(histogram.log));
    draw();
  });
}

// Training --------------------------------------------------------------------------------------------------

function drawTraining() {
  if (!data.training) return;
  const { epochs, panels } = data.training;
  for (const panel of panels) {
    const place = find("#training-" + panel.name);
    const most = Math.max(0, ...[panel.mean, ...panel.members].flat().filter((value) => value !== null));
    const thin = panel.members.map(() => ({
      stroke: () => color("normal"), width: 1, alpha: 0.55, points: { show: false }, spanGaps: false,
    }));
    plot(place, () => [epochs, ...panel.members, panel.mean], () => ({
      scales: { x: { time: false }, y: { range: [0, (most || 1) * 1.1] } },
      axes: [
        axis({ values: (_, splits) => splits.map(wholeOnly), grid: { show: false } }),
        axis({ size: 46, values: (_, splits) => splits.map((value) => number(value)) }),
      ],
      series: [{}, ...thin, { stroke: () => color("ink"), width: 2, points: { show: epochs.length === 1 } }],
      cursor: { sync: { key: "epochs" } },
    }), (i) => {
      const members = panel.members.map((line) => line[i]).filter((value) => value !== null);
      const [low, high] = [Math.min(...members), Math.max(...members)];
      const lines = low < high ? [`members ${number(low)} to ${number(high)}`] : [];
      return [`${panel.title} ${number(panel.mean[i])}`, `epoch ${epochs[i]}`, ...lines];
    });
  }
}

// Evaluation ------------------------------------------------------------------------------------------------

function drawCurves() {
  for (const [name, curve] of Object.entries(data.curves)) {
    const place = find("#curve-" + name);
    const chance = name === "roc" ? curve.x : curve.x.map(() => null);
    plot(place, () => [curve.x, chance, curve.y], () => ({
      scales: { x: { time: false, range: [0, 1] }, y: { range: [0, 1.02] } },
      axes: [
        axis({ label: curve.x_label, labelFont: font(12), labelSize: 20, labelGap: 2 }),
        axis({ label: curve.y_label, labelFont: font(12), labelSize: 20, size: 40 }),
      ],
      series: [
        {}, { stroke: () => color("muted"), width: 1, dash: [4, 4], points: { show: false } },
        { stroke: () => color("accent"), width: 2, points: { show: false } },
      ],
    }), (i) => [`${curve.y_label} ${number(curve.y[i], 3)}`, `${curve.x_label} ${number(curve.x[i], 3)}`]);
  }
}
