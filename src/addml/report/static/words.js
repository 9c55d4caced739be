// Shared by the other scripts, which run in the same function: data, colours, text, tooltip.
const root = document.documentElement;
const find = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const data = JSON.parse(find("#numbers").textContent);
const charts = []; // each: { draw() }

// Colours and text ------------------------------------------------------------------------------------------

const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
const font = (size, weight = 400) => `${weight} ${size}px ${color("sans")}`;

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en").replace("-", "−");
  const size = Math.abs(value);
  const whole = size >= 10 ** (digits - 1) && size < 10 ** (digits + 3);
  const text = whole ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

const rows = (count) => `${number(count)} ${data.noun}${count === 1 ? "" : "s"}`;

// Tooltip -----------------------------------------------------------------------------------------------------

const tip = find("#tip");

function showTip(x, y, title, lines = []) {
  const bold = document.createElement("b");
  bold.textContent = title;
  const spans = lines.map((line) => Object.assign(document.createElement("span"), { textContent: line }));
  tip.replaceChildren(bold, ...spans);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth - 8 ? x - 14 - box.width : x + 14;
  const top = Math.min(Math.max(8, y - box.height / 2), innerHeight - box.height - 8);
  tip.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
}

const hideTip = () => { tip.hidden = true; };
addEventListener("scroll", hideTip, { passive: true });
