"use strict";
// What every chart shares: the data, colours, text that stays text, and the controls.
const data = JSON.parse(document.getElementById("data").textContent);
const K = data.classes.length;
const byId = (id) => document.getElementById(id);
const percent = (rate) => (rate === null ? "no samples" : (100 * rate).toFixed(1));

// Plotly reads a little HTML in its labels: a class called <b> must stay text there too.
const plain = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
// The first ten, and how many more: of a thousand classes most may have no samples.
const fewNames = (names) => names.slice(0, 10).join(", ") +
  (names.length > 10 ? ` and ${names.length - 10} more` : "");
const brief = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

const PALETTE = ["#3b6ea5", "#c8641f", "#4c9a6a", "#8e5ea2", "#b0413e", "#6b8e23", "#2a9d9d",
  "#b8860b", "#7f7f7f", "#d16ba5"];
const recipes = [...new Set(data.rows.map((row) => row.recipe))];
const recipeColour = (recipe) => PALETTE[recipes.indexOf(recipe) % PALETTE.length];

function theme() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue("--" + name).trim();
  return {ink: named("ink"), soft: named("soft"), card: named("card"), grid: named("grid"),
    right: named("right"), wrong: named("wrong"), line: named("line")};
}

function draw(where, traces, layout) {
  const colours = theme();
  const axis = {gridcolor: colours.grid, zerolinecolor: colours.grid, linecolor: colours.line,
    tickcolor: colours.line};
  const base = {
    paper_bgcolor: colours.card, plot_bgcolor: colours.card, hovermode: "closest",
    font: {family: "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", size: 13,
      color: colours.ink},
    hoverlabel: {bgcolor: colours.card, bordercolor: colours.line, align: "left",
      font: {color: colours.ink, size: 13}},
    margin: {l: 60, r: 20, t: 28, b: 50},
  };
  const full = {...base, ...layout, xaxis: {...axis, ...layout.xaxis},
    yaxis: {...axis, ...layout.yaxis}};
  // Only these buttons: Plotly's own set has one that sends the chart to its makers' server.
  Plotly.react(where, traces, full, {displaylogo: false, responsive: true, plotlyServerURL: "",
    typesetMath: false, modeBarButtons: [["toImage", "resetScale2d"]]});
}

// Rates of all classes on one side of a row; null where there is no sample.
const rates = (side) => side.hits.map((hits, k) => (side.sizes[k] ? hits / side.sizes[k] : null));
const mainSide = (row) => row.sides.robust || row.sides.clean;
// The row shown first: the one that stands the attack best on average.
const favourite = data.rows.reduce((best, row, i) =>
  (mainSide(row).overall > mainSide(data.rows[best]).overall ? i : best), 0);
const present = (side) => [...side.sizes.keys()].filter((k) => side.sizes[k]);

// Classes that have samples, the lowest rate first.
function ranked(row) {
  const side = mainSide(row), found = rates(side);
  return present(side).sort((a, b) => found[a] - found[b] || a - b);
}

function option(value, text) {
  const one = document.createElement("option");
  one.value = value;
  one.textContent = text;
  return one;
}

function fillRows(id, first) {
  byId(id).replaceChildren(...(first ? [option("", first)] : []),
    ...data.rows.map((row, i) => option(i, row.label)));
  if (!first) byId(id).value = favourite;
}

const SIDES = ["robust", "clean"].filter((side) => data.rows.some((row) => row.sides[side]));
function fillSides(id) {
  byId(id).replaceChildren(...SIDES.map((side) =>
    option(side, side === "robust" ? "attacked" : "clean")));
}

const drawings = [];
// Draw now, and again whenever one of its controls or the colour scheme changes.
function chart(controls, drawing) {
  drawings.push(drawing);
  controls.forEach((id) => byId(id).addEventListener("change", drawing));
  drawing();
}
const redraw = () => drawings.forEach((drawing) => drawing());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
for (const [event, on] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => {
    document.documentElement.classList.toggle("printing", on);
    redraw();
  });
}
