// Which classes are taken for which: a map while it can be read, a list always.

// Classes in the order of the map: superclass by superclass where there are some.
const mapOrder = [...data.classes.keys()].sort((a, b) => data.superclass_of ?
  data.superclass_of[a] - data.superclass_of[b] || a - b : a - b);

function classMatrix(side) {
  const at = [];
  mapOrder.forEach((k, i) => { at[k] = i; });
  const matrix = mapOrder.map(() => new Array(K).fill(0));
  side.hits.forEach((hits, k) => { matrix[at[k]][at[k]] = hits; });
  side.flows.forEach(([k, j, count]) => { matrix[at[k]][at[j]] = count; });
  return matrix;
}

function drawMap(matrix, names, borders) {
  const colours = theme(), count = names.length, places = names.map((_, i) => i);
  const sums = matrix.map((row) => row.reduce((a, b) => a + b, 0));
  const part = (keep) => matrix.map((row, i) => row.map((n, j) =>
    (keep === (i === j) && n && sums[i] ? 100 * n / sums[i] : null)));
  const hover = (keep) => matrix.map((row, i) => row.map((n, j) => (keep === (i === j) && n ?
    `${plain(names[i])} taken for ${plain(names[j])}<br>${n} of ${sums[i]}, ` +
    `${(100 * n / sums[i]).toFixed(1)} %` : "")));
  const labelled = count <= 12 ? {texttemplate: "%{z:.0f}", textfont: {size: 12}} : {};
  const layer = (keep, colour) => ({
    type: "heatmap", x: places, y: places, z: part(keep), zmin: 0, showscale: false,
    zmax: keep ? 100 : Math.max(5, ...part(false).flat()), hoverongaps: false,
    colorscale: [[0, colours.card], [1, colour]], hoverinfo: "text", hovertext: hover(keep),
    xgap: count <= 30 ? 1 : 0, ygap: count <= 30 ? 1 : 0, ...labelled,
  });
  const size = count <= 12 ? 520 : Math.min(1120, 180 + 13 * count);
  const ticks = {tickvals: places, ticktext: names.map((name) => plain(brief(name, 20))),
    showgrid: false, zeroline: false, automargin: true,
    tickfont: {size: count <= 30 ? 12 : count <= 60 ? 10 : 9}, range: [-0.5, count - 0.5]};
  const line = (at, across) => ({type: "line", line: {width: 0.7, color: colours.soft},
    ...(across ? {x0: -0.5, x1: count - 0.5, y0: at, y1: at} :
      {x0: at, x1: at, y0: -0.5, y1: count - 0.5})});
  draw("confusion-plot", [layer(false, colours.wrong), layer(true, colours.right)], {
    height: size,
    xaxis: {...ticks, side: "bottom", title: {text: "taken for", standoff: 10}, tickangle: count > 6 ? -60 : 0},
    yaxis: {...ticks, ticktext: ticks.ticktext.map((name, i) => name + (sums[i] ? "" : " (no samples)")),
      range: [count - 0.5, -0.5], title: {text: "true class", standoff: 10}},
    shapes: borders.flatMap((at) => [line(at, true), line(at, false)]),
  });
}

function drawFlows(side) {
  const listed = side.flows.slice(0, 300);
  const covered = listed.reduce((sum, flow) => sum + flow[2], 0);
  byId("flows-note").textContent = side.mistakes === 0 ? "No mistakes." :
    `${listed.length} of ${side.flow_count} pairs, ${covered} of ${side.mistakes} mistakes ` +
    `(${(100 * covered / side.mistakes).toFixed(0)} %).`;
  byId("flows-body").replaceChildren(...listed.map(([k, j, count]) => {
    const line = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = data.classes[k];
    line.append(head);
    for (const text of [data.classes[j], count, (100 * count / side.sizes[k]).toFixed(1)]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      line.append(cell);
    }
    return line;
  }));
}

function drawConfusion() {
  const row = data.rows[byId("confusion-row").value];
  const side = row.sides[byId("confusion-side").value] || mainSide(row);
  drawFlows(side);
  const level = byId("confusion-level").value;
  byId("confusion-plot").hidden = !level;
  byId("confusion-plot").parentElement.classList.toggle("stacked",
    !level || (level === "classes" && K > 12) || level === "superclasses");
  if (level === "superclasses") {
    drawMap(side.superclass_confusion, data.superclasses, []);
  } else if (level === "classes") {
    const of = data.superclass_of;
    const borders = of ? mapOrder.flatMap((k, i) =>
      (i && of[k] !== of[mapOrder[i - 1]] ? [i - 0.5] : [])) : [];
    drawMap(classMatrix(side), mapOrder.map((k) => data.classes[k]), borders);
  }
}

const levels = [...(K <= data.map_limit ? ["classes"] : []),
  ...(data.superclasses ? ["superclasses"] : [])];
byId("confusion-level").replaceChildren(...levels.map((level) => option(level, level)));
byId("confusion-level-label").hidden = levels.length < 2;
byId("bars-part-label").hidden = K <= data.map_limit;
["bars-row", "confusion-row"].forEach((id) => fillRows(id));
fillRows("bars-other", "nothing");
["scatter-side", "confusion-side"].forEach(fillSides);
chart(["scatter-side", "scatter-low"], drawScatter);
chart(["bars-row", "bars-other", "bars-part"], drawBars);
chart(["confusion-row", "confusion-side", "confusion-level"], drawConfusion);
