// Average against worst, bars per class, confusion.

// Choose for every point the first side where its label touches no other label or point.
function labelPlaces(points, width, height) {
  const boxes = points.map((p) => ({x: p.x - 7, y: p.y - 7, w: 14, h: 14}));
  const touches = (a, b) =>
    a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  return points.map((p, i) => {
    const w = 7.2 * p.text.length + 6, h = 17;
    const places = {
      "middle right": {x: p.x + 9, y: p.y - h / 2, w, h},
      "middle left": {x: p.x - 9 - w, y: p.y - h / 2, w, h},
      "top center": {x: p.x - w / 2, y: p.y - 9 - h, w, h},
      "bottom center": {x: p.x - w / 2, y: p.y + 9, w, h},
    };
    for (const [place, box] of Object.entries(places)) {
      const inside = box.x >= 0 && box.x + box.w <= width && box.y >= 0 && box.y + box.h <= height;
      if (inside && !boxes.some((other, j) => j !== i && touches(box, other))) {
        boxes.push(box);
        return place;
      }
    }
    return null; // hover and legend still name it
  });
}

function drawScatter() {
  const side = byId("scatter-side").value, low = byId("scatter-low").value;
  const rows = data.rows.filter((row) => row.sides[side]);
  const x = rows.map((row) => 100 * row.sides[side].overall);
  const y = rows.map((row) => 100 * row.sides[side][low]);
  const range = (values) => {
    const least = Math.min(...values), most = Math.max(...values);
    const pad = Math.max(3, 0.15 * (most - least));
    const span = most - least + 2 * pad; // a little below 0 at most, so that no tick is negative
    return [Math.max(-0.04 * span, least - pad), Math.min(100 + 0.04 * span, most + pad)];
  };
  const xs = range(x), ys = range(y), width = byId("scatter-plot").clientWidth - 80, height = 380;
  const places = labelPlaces(rows.map((row, i) => ({
    text: row.label,
    x: (x[i] - xs[0]) / (xs[1] - xs[0]) * width,
    y: (ys[1] - y[i]) / (ys[1] - ys[0]) * height,
  })), width, height);
  const traces = rows.map((row, i) => {
    const found = row.sides[side];
    const who = low === "worst" ? "worst class " + found.worst_class :
      "worst 10 %: " + found.tail_classes.slice(0, 8).join(", ") +
      (found.tail_classes.length > 8 ? " and " + (found.tail_classes.length - 8) + " more" : "");
    return {
      x: [x[i]], y: [y[i]], mode: "markers+text", name: plain(row.label), cliponaxis: false,
      text: [places[i] ? plain(row.label) : ""], textposition: places[i] || "middle right",
      marker: {size: 12, color: recipeColour(row.recipe), line: {width: 1.5, color: theme().card}},
      hoverinfo: "text", hovertext: [`<b>${plain(row.label)}</b><br>average ${x[i].toFixed(1)} %` +
        `<br>${y[i].toFixed(1)} %: ${plain(who)}` + (low === "worst" ?
          `<br>truly worst class ${found.worst_interval.map(percent).join(" to ")} %` : "")],
    };
  });
  draw("scatter-plot", traces, {
    height: height + 78 + (places.includes(null) ? 60 : 0), showlegend: places.includes(null),
    legend: {orientation: "h", y: -0.25},
    xaxis: {title: {text: "average accuracy, %"}, range: xs, zeroline: false},
    yaxis: {title: {text: low === "worst" ? "worst class, %" : "worst 10 % of classes, %"},
      range: ys, zeroline: false},
    shapes: [{type: "line", x0: 0, y0: 0, x1: 100, y1: 100, layer: "below",
      line: {dash: "dash", width: 1, color: theme().soft}}],
  });
}

function bar(side, k) {
  const rate = side.hits[k] / side.sizes[k];
  const flow = side.flows.find((one) => one[0] === k);
  return {rate: 100 * rate, up: 100 * (side.high[k] - rate), down: 100 * (rate - side.low[k]),
    text: `${plain(data.classes[k])}: ${percent(rate)} %, n = ${side.sizes[k]}` +
      `<br>95 % from ${percent(side.low[k])} to ${percent(side.high[k])}` +
      (flow ? `<br>most often taken for ${plain(data.classes[flow[1]])} (${flow[2]}×)` : "")};
}

function drawBars() {
  const row = data.rows[byId("bars-row").value], colours = theme();
  const other = data.rows[byId("bars-other").value];
  const order = ranked(row), part = K > data.map_limit ? byId("bars-part").value : "all";
  const chosen = part === "all" ? order :
    part === "worst" ? order.slice(0, 50) : order.slice(-50);
  const side = mainSide(row), places = chosen.map((_, i) => i);
  const found = chosen.map((k) => bar(side, k));
  const dense = chosen.length > 150;
  const traces = [{
    type: "bar", x: places, y: found.map((b) => b.rate), name: plain(row.label),
    marker: {color: colours.right, opacity: 0.8},
    error_y: {type: "data", array: found.map((b) => b.up), arrayminus: found.map((b) => b.down),
      color: colours.ink, thickness: dense ? 0.4 : 1.1, width: chosen.length > 40 ? 0 : 4},
    hoverinfo: "text", hovertext: found.map((b) => b.text),
  }];
  const dots = (which, name, colour, symbol) => {
    const here = chosen.map((k, i) => [k, i]).filter(([k]) => which.sizes[k]);
    const values = here.map(([k]) => bar(which, k));
    traces.push({type: "scatter", mode: "markers", x: here.map(([, i]) => i),
      y: values.map((b) => b.rate), name, hoverinfo: "text", cliponaxis: false,
      hovertext: values.map((b) => name + "<br>" + b.text),
      marker: {symbol, size: dense ? 3 : chosen.length > 40 ? 6 : 9, color: colour,
        line: {width: 1.5, color: colour}}});
  };
  if (row.sides.robust && row.sides.clean) {
    dots(row.sides.clean, plain(row.label) + ", clean", colours.soft, "circle-open");
  }
  if (other && other !== row) {
    dots(mainSide(other), plain(other.label), recipeColour(other.recipe), "diamond");
  }
  const empty = data.classes.filter((_, k) => !side.sizes[k]);
  const [least, most] = side.worst_interval, [equal, from, to] = side.worst_if_equal;
  byId("bars-note").textContent = `Worst class ${side.worst_class}: ${percent(side.worst)} %. The ` +
    `truly worst class lies between ${percent(least)} and ${percent(most)} % (95 %, all classes ` +
    `considered). With all classes equal at ${percent(side.overall)} %, the worst would show ` +
    `about ${percent(equal)} % (90 % of the time ${percent(from)} to ${percent(to)} %).` +
    (empty.length ? ` No samples: ${fewNames(empty)}.` : "");
  const average = 100 * side.overall;
  const level = (y, dash) => ({type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y,
    line: {dash, width: 1.2, color: colours.ink}});
  const longest = Math.max(...chosen.map((k) => brief(data.classes[k], 24).length));
  draw("bars-plot", traces, {
    height: 420 + (chosen.length > 15 ? Math.min(150, 6 * longest) : 0), bargap: dense ? 0 : 0.25,
    xaxis: {tickvals: dense ? [] : places, ticktext: chosen.map((k) => plain(brief(data.classes[k], 24))),
      tickangle: chosen.length > 15 || longest > 90 / chosen.length + 5 ? -60 : 0, automargin: true,
      tickfont: {size: chosen.length > 60 ? 10 : 12}, showgrid: false, zeroline: false,
      range: [-0.7, chosen.length - 0.3],
      title: {text: part === "all" && dense ? `all ${chosen.length} classes, the least robust first` : ""}},
    yaxis: {title: {text: "accuracy, %"}, range: [0, 103], automargin: true},
    legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0}, showlegend: traces.length > 1,
    margin: {l: 60, r: 20, t: 30, b: 30},
    shapes: [level(average, "dot"), level(100 * equal, "dash")],
    annotations: [{xref: "paper", x: 0, y: average, xanchor: "left", yanchor: "bottom",
      showarrow: false, text: `average ${average.toFixed(1)}`, bgcolor: colours.card, opacity: 0.85,
      font: {size: 11}}],
  });
}
