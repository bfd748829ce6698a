// Training curves: one panel per series, the same few classes in all of them.
const FEW = 10; // with more classes than this, only some are drawn at first
const picked = new Set();

// From the least robust of the classes shown (orange) to the most robust (violet).
function rankColour(place, count) {
  const stops = [[200, 84, 31], [214, 168, 60], [96, 150, 110], [59, 110, 165], [112, 94, 172]];
  const at = (count > 1 ? place / (count - 1) : 0) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at)), t = at - i;
  return "rgb(" + stops[i].map((c, n) => Math.round(c + t * (stops[i + 1][n] - c))).join(",") + ")";
}

function runOrder(curve) {
  const row = data.rows.find((one) => one.run === curve.run);
  return row ? ranked(row) : [...data.classes.keys()];
}

function pickFew() {
  const order = runOrder(data.curves[byId("curves-run").value]);
  picked.clear();
  const few = order.length <= FEW ? order : [...order.slice(0, 4), ...order.slice(-3)];
  few.forEach((k) => picked.add(k));
}

function drawChips(shown, colour) {
  byId("curves-classes").replaceChildren(...shown.map((k) => {
    const chip = document.createElement("button"), dash = document.createElement("i");
    chip.type = "button";
    chip.title = "leave out";
    dash.style.background = colour(k);
    chip.append(dash, data.classes[k]);
    chip.addEventListener("click", () => { picked.delete(k); drawCurves(); });
    return chip;
  }));
}

function drawCurves() {
  const curve = data.curves[byId("curves-run").value], order = runOrder(curve);
  const place = new Map(order.map((k, i) => [k, i]));
  const shown = [...picked].sort((a, b) => (place.get(a) ?? K) - (place.get(b) ?? K));
  const colour = (k) => rankColour(shown.indexOf(k), shown.length);
  drawChips(shown, colour);
  byId("curves-note").textContent = "Coloured from the least robust of these classes (orange) " +
    "to the most robust (violet); the thick line is the average. " +
    (curve.epochs.length < curve.finished ?
      `${curve.epochs.length} of ${curve.finished} epochs are drawn. ` : "");
  const panels = byId("curves-panels");
  while (panels.children.length > curve.series.length) {
    Plotly.purge(panels.lastChild);
    panels.lastChild.remove();
  }
  curve.series.forEach((series, number) => {
    const scale = series.rate ? 100 : 1;
    const value = (v) => (v === null || v === undefined ? null : scale * v);
    const words = (name, y) => curve.epochs.map((epoch, i) =>
      `${plain(name)}<br>epoch ${epoch}: ${y[i] === null ? "–" : +y[i].toPrecision(3)}`);
    const traces = shown.map((k) => {
      const y = series.by_class.map((classes) => (classes ? value(classes[k]) : null));
      return {x: curve.epochs, y, connectgaps: true, mode: curve.epochs.length > 1 ? "lines" : "markers",
        line: {width: 1.6, color: colour(k)}, marker: {color: colour(k)}, hoverinfo: "text",
        hovertext: words(data.classes[k], y)};
    });
    if (series.overall.some((v) => v !== null)) {
      const y = series.overall.map(value);
      traces.push({x: curve.epochs, y, connectgaps: true, line: {width: 2.6, color: theme().ink}, hoverinfo: "text",
        mode: curve.epochs.length > 1 ? "lines" : "markers", hovertext: words("average", y)});
    }
    if (!panels.children[number]) {
      const panel = document.createElement("div");
      panel.className = "panel plot";
      panels.append(panel);
    }
    draw(panels.children[number], traces, {
      height: 270, showlegend: false, margin: {l: 48, r: 12, t: 34, b: 46},
      title: {text: plain(series.title) + (series.rate ? ", %" : ""), font: {size: 13}, x: 0.02,
        xanchor: "left"},
      xaxis: {title: {text: "epoch", standoff: 2, font: {size: 12}}, zeroline: false,
        ...(curve.finished <= 10 ? {dtick: 1} : {})},
      yaxis: {zeroline: false, ...(series.rate ? {range: [-2, 102]} : {rangemode: "tozero"})},
    });
  });
}

if (data.curves.length) {
  byId("curves-run").replaceChildren(...data.curves.map((one, i) => option(i, one.label)));
  byId("class-names").replaceChildren(...data.classes.map((name) => option(name, name)));
  byId("curves-add").addEventListener("change", (event) => {
    const k = data.classes.indexOf(event.target.value);
    if (k < 0) return;
    picked.add(k);
    event.target.value = "";
    drawCurves();
  });
  byId("curves-reset").hidden = K <= FEW;
  byId("curves-reset").addEventListener("click", () => { pickFew(); drawCurves(); });
  byId("curves-run").addEventListener("change", pickFew);
  byId("curves-run").value = Math.max(0,
    data.curves.findIndex((one) => one.run === data.rows[favourite].run));
  pickFew();
  chart(["curves-run"], drawCurves);
}
