// Groupings other than the classes: one chart and one table, for the grouping that is chosen.
const grouping = () => data.groupings[byId("groups-name").value];

function groupCells(found, k) {
  if (!found || !found.sizes[k]) return ["no samples", ""];
  return [percent(found.hits[k] / found.sizes[k]), `${percent(found.low[k])} to ${percent(found.high[k])}`];
}

// Accuracy on clean images, with their number where they are not those that were attacked.
function cleanCell(clean, found, k) {
  const asked = clean.sizes[k] === found.sizes[k] ? "" : ` (of ${clean.sizes[k]})`;
  return groupCells(clean, k)[0] + (clean.sizes[k] ? asked : "");
}

function fillGroups(chosen, found, clean) {
  byId("groups-clean").hidden = !clean;
  byId("groups-body").replaceChildren(...chosen.map((k) => {
    const line = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = grouping().names[k];
    line.append(head);
    const beside = clean ? [cleanCell(clean, found, k)] : [];
    for (const text of [found.sizes[k], ...groupCells(found, k), ...beside]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      line.append(cell);
    }
    return line;
  }));
}

function groupNote(found) {
  if (!found) return "This recipe has no groups of that name on these images.";
  const [least, most] = found.worst_interval;
  return `${found.condition}: worst group ${found.worst_group} at ${percent(found.worst)} %; the truly ` +
    `worst lies between ${percent(least)} and ${percent(most)} % (95 %, all groups considered). ` +
    `Gap ${percent(found.gap)}, deviation ${percent(found.spread)} points.` +
    (found.overlapping ? " Images may be in several groups." : "") +
    (found.outside ? ` ${found.outside} image${found.outside > 1 ? "s are" : " is"} in no group.` : "");
}

function drawGroups() {
  const {names, rows} = grouping(), colours = theme();
  const sides = rows[byId("groups-row").value], found = sides[byId("groups-side").value];
  const clean = found === sides.clean ? null : sides.clean;
  byId("groups-note").textContent = groupNote(found);
  byId("groups-plot").hidden = byId("groups-table").hidden = !found;
  if (!found) return;
  const rate = (k) => (found.sizes[k] ? found.hits[k] / found.sizes[k] : 2); // the empty come last
  const order = [...names.keys()].sort((a, b) => rate(a) - rate(b) || a - b);
  fillGroups(order, found, clean);
  const drawn = order.filter((k) => found.sizes[k]), dense = drawn.length > 60;
  const ringed = clean ? drawn.map((k, i) => [k, i]).filter(([k]) => clean.sizes[k]) : [];
  draw("groups-plot", [{
    type: "bar", x: drawn.map((_, i) => i), y: drawn.map((k) => 100 * rate(k)),
    name: found.condition, marker: {color: colours.right, opacity: 0.8}, hoverinfo: "text",
    hovertext: drawn.map((k) => `${plain(names[k])}: ${groupCells(found, k)[0]} %, ` +
      `n = ${found.sizes[k]}<br>95 % from ${groupCells(found, k)[1]}`),
    error_y: {type: "data", array: drawn.map((k) => 100 * (found.high[k] - rate(k))),
      arrayminus: drawn.map((k) => 100 * (rate(k) - found.low[k])), color: colours.ink,
      thickness: dense ? 0.4 : 1.1, width: dense ? 0 : 4},
  }, {
    type: "scatter", mode: "markers", x: ringed.map(([, i]) => i), cliponaxis: false,
    y: ringed.map(([k]) => (100 * clean.hits[k]) / clean.sizes[k]), name: "clean",
    hoverinfo: "text", hovertext: ringed.map(([k]) => `${plain(names[k])}, clean: ` +
      `${groupCells(clean, k)[0]} %, n = ${clean.sizes[k]}<br>95 % from ${groupCells(clean, k)[1]}`),
    marker: {symbol: "circle-open", size: dense ? 3 : 9, color: colours.soft,
      line: {width: 1.5, color: colours.soft}},
  }], {
    height: 380, bargap: dense ? 0 : 0.25, showlegend: Boolean(clean),
    legend: {orientation: "h", y: 1.12},
    xaxis: {tickvals: dense ? [] : drawn.map((_, i) => i),
      ticktext: drawn.map((k) => plain(brief(names[k], 24))), automargin: true, showgrid: false,
      zeroline: false, range: [-0.7, drawn.length - 0.3]},
    yaxis: {title: {text: "accuracy, %"}, range: [0, 103], automargin: true},
  });
}

if (data.groupings.length) {
  byId("groups-name").replaceChildren(...data.groupings.map((one, i) => option(i, one.name)));
  // the reader's own groupings are what the page was made for
  byId("groups-name").value = Math.max(0, data.groupings.findIndex((one) => one.name !== "superclass"));
  fillRows("groups-row");
  fillSides("groups-side");
  chart(["groups-name", "groups-row", "groups-side"], drawGroups);
}
