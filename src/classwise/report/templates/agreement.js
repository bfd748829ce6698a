// Agreement between runs: orders of the classes, the worst one over epochs, uneven confusions.
const agreed = () => data.agreement[byId("agreement-condition").value];
const digits = (value, many = 2) => (value === null || value === undefined ? "–" : value.toFixed(many));

// A square or oblong map of numbers with names on both sides; `hover` gives the words of a cell.
function numberMap(where, {z, x, y, hover, low, high, title, text}) {
  const colours = theme(), few = x.length * y.length <= 150;
  const ticks = (names, most) => ({tickvals: names.map((_, i) => i), automargin: true,
    ticktext: names.map((name) => plain(brief(name, most))), showgrid: false, zeroline: false,
    tickfont: {size: names.length <= 30 ? 12 : 9}});
  draw(where, [{
    type: "heatmap", x: x.map((_, i) => i), y: y.map((_, i) => i), z, zmin: low, zmax: high,
    showscale: false, hoverinfo: "text", hovertext: hover, hoverongaps: false,
    colorscale: low < 0 ? [[0, colours.wrong], [0.5, colours.card], [1, colours.right]] :
      [[0, colours.card], [1, colours.right]],
    xgap: few ? 1 : 0, ygap: few ? 1 : 0, ...(few ? {texttemplate: text, textfont: {size: 12}} : {}),
  }], {
    height: Math.min(1120, 200 + Math.max(120, (y.length <= 12 ? 34 : 15) * y.length)),
    title: {text: title, font: {size: 14}}, margin: {l: 60, r: 20, t: 46, b: 50},
    xaxis: {...ticks(x, 20), tickangle: x.length > 4 ? -60 : 0},
    yaxis: {...ticks(y, 24), range: [y.length - 0.5, -0.5]},
  });
}

function tableLine(cells) {
  const line = document.createElement("tr");
  cells.forEach((text, i) => {
    const cell = document.createElement(i ? "td" : "th");
    cell.textContent = text;
    line.append(cell);
  });
  return line;
}

function drawPairs() {
  const one = agreed(), measure = one.measures[byId("agreement-measure").value];
  const span = (i, j) => `${digits(measure.value[i][j])} (${digits(measure.low[i][j])} to ` +
    `${digits(measure.high[i][j])})`;
  numberMap("agreement-plot", {
    z: measure.value, x: one.runs, y: one.runs, title: plain(measure.title), text: "%{z:.2f}",
    hover: one.runs.map((a, i) => one.runs.map((b, j) =>
      `${plain(a)} and ${plain(b)}<br>${i === j ? "itself" : span(i, j)}`)),
    low: byId("agreement-measure").value === "overlap" ? 0 : -1, high: 1,
  });
}

// Classes by their mean rank over all runs, the worst first.
function ranksOrder(one) {
  const mean = one.classes.map((_, k) => one.ranks.reduce((sum, run) => sum + run[k], 0));
  return [...one.classes.keys()].sort((a, b) => mean[a] - mean[b] || a - b);
}

function drawRanks() {
  const one = agreed(), order = ranksOrder(one), few = order.length <= data.map_limit;
  byId("ranks-head").replaceChildren(tableLine(["class", ...one.runs]));
  byId("ranks-body").replaceChildren(...order.map((k) => tableLine([one.classes[k],
    ...one.runs.map((_, r) => `${one.ranks[r][k]} (${percent(one.rates[r][k])} %)`)])));
  const shown = few ? order : order.slice(0, 50);
  numberMap("ranks-plot", {
    z: shown.map((k) => one.runs.map((_, r) => one.ranks[r][k])), x: one.runs,
    y: shown.map((k) => one.classes[k]), low: 1, high: one.classes.length, text: "%{z}",
    title: "rank of each class, 1 is the worst" + (few ? "" : " (50 worst)"),
    hover: shown.map((k) => one.runs.map((name, r) => `${plain(one.classes[k])} in ${plain(name)}` +
      `<br>rank ${one.ranks[r][k]}, ${percent(one.rates[r][k])} %, n = ${one.sizes[r][k]}`)),
  });
}

function drawEpochs() {
  const one = agreed(), known = one.details.filter((run) => run.over_epochs);
  byId("epochs-plot").hidden = !known.length;
  byId("epochs-note").textContent = known.length ?
    known.map((run) => `${run.name}: ${run.over_epochs.words}.`).join(" ") +
    " Without intervals: a history keeps rates, not counts." : "No run has a history of this.";
  if (!known.length) return;
  const names = [...new Set(known.flatMap((run) => run.over_epochs.worst))];
  draw("epochs-plot", known.map((run, i) => ({
    type: "scatter", mode: "lines+markers", name: plain(run.name),
    x: run.over_epochs.epochs, y: run.over_epochs.worst.map((name) => names.indexOf(name)),
    line: {shape: "hv", width: 1.5, color: PALETTE[i % PALETTE.length]}, hoverinfo: "text",
    hovertext: run.over_epochs.worst.map((name, at) => `${plain(run.name)}, epoch ` +
      `${run.over_epochs.epochs[at]}<br>${plain(name)}: ${percent(run.over_epochs.rates[at])} %`),
  })), {
    height: 200 + 24 * names.length, legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0},
    xaxis: {title: {text: "epoch"}}, yaxis: {tickvals: names.map((_, i) => i), automargin: true,
      ticktext: names.map((name) => plain(brief(name, 24)))},
  });
}

function drawDetails() {
  const run = agreed().details[byId("agreement-run").value], similar = run.similarity;
  byId("uneven-note").textContent = `${run.uneven_sure} of ${run.pairs} confused pairs are surely ` +
    "uneven (Fisher's exact test, Holm's correction for all pairs); the surest first.";
  byId("uneven-body").replaceChildren(...run.uneven.map((pair) => tableLine([pair.first, pair.second,
    percent(pair.there / pair.there_of), percent(pair.back / pair.back_of),
    `${percent(pair.low)} to ${percent(pair.high)}`, pair.p_value.toPrecision(2)])));
  byId("similarity-plot").hidden = !similar || !similar.cosines;
  byId("similarity-note").textContent = similar ? `Similarity: ${similar.words}.` :
    "The similarity of its classes is not known; first run: classwise similarity.";
  if (!similar || !similar.cosines) return;
  numberMap("similarity-plot", {
    z: similar.cosines, x: similar.classes, y: similar.classes, low: -1, high: 1, text: "%{z:.2f}",
    title: "cosine of class-mean logits",
    hover: similar.classes.map((a, i) => similar.classes.map((b, j) =>
      `${plain(a)} and ${plain(b)}<br>cosine ${digits(similar.cosines[i][j])}`)),
  });
}

function drawAgreement() {
  const one = agreed(), [mean, low, high] = one.mean;
  byId("agreement-verdict").textContent = one.verdict;
  byId("agreement-note").textContent = `Mean of Spearman's ρ over all pairs ${digits(mean)} ` +
    `(${digits(low)} to ${digits(high)}), ${100 * one.level} % intervals from ${one.draws} draws of ` +
    `images within each class. Two unrelated orders stay below ${digits(one.by_chance)} in 19 of 20 ` +
    "cases. On images drawn anew a run agrees with itself by " +
    one.runs.map((name, i) => `${name} ${digits(one.steady[i])}`).join(", ") + ". " +
    Object.entries(one.differs).map(([name, values]) => `Differs: ${name} (${values.join(", ")}). `)
      .join("") + one.notes.map((note) => note[0].toUpperCase() + note.slice(1) + ". ").join("");
  [drawPairs, drawRanks, drawEpochs, drawDetails].forEach((drawing) => drawing());
}

if (data.agreement.length) {
  byId("agreement-condition").replaceChildren(...data.agreement.map((one, i) => option(i, one.condition)));
  byId("agreement-measure").replaceChildren(...Object.entries(data.agreement[0].measures).map(
    ([name, one]) => option(name, one.title)));
  byId("agreement-run").replaceChildren(...data.agreement[0].runs.map((name, i) => option(i, name)));
  chart(["agreement-condition", "agreement-measure", "agreement-run"], drawAgreement);
}
