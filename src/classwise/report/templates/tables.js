// Tables of classes and superclasses: fill, find, sort.

function fillCell(cell, value, title) {
  cell.textContent = value === undefined ? "–" : percent(value);
  cell.title = title || "";
  cell.style.setProperty("--share", value || 0);
}

function fillClasses() {
  const side = byId("table-side").value, measure = byId("table-measure").value;
  const columns = data.rows.map((row) => {
    const found = row.sides[side];
    return found && {found, values: measure === "accuracy" ? rates(found) : found[measure]};
  });
  for (const line of byId("class-table").tBodies[0].rows) {
    const k = +line.dataset.number;
    line.querySelectorAll(".heat").forEach((cell, i) => {
      const column = columns[i];
      const interval = column && measure === "accuracy" && column.found.sizes[k] ?
        `${percent(column.found.low[k])} to ${percent(column.found.high[k])}, ` +
        `n = ${column.found.sizes[k]}` : "";
      fillCell(cell, column ? column.values[k] : undefined, interval);
    });
  }
}

function fillSuperclasses() {
  const side = byId("superclass-side").value;
  for (const line of byId("superclass-table").tBodies[0].rows) {
    line.querySelectorAll(".heat").forEach((cell, i) => {
      const found = data.rows[i].sides[side], group = +line.dataset.number;
      fillCell(cell, found ? found.superclass_rates[group] : undefined);
      const inside = found ? present(found).filter((k) => data.superclass_of[k] === group) : [];
      if (!inside.length) return;
      const all = rates(found);
      const worst = inside.reduce((a, b) => (all[b] < all[a] ? b : a));
      const small = document.createElement("small");
      small.textContent = `${data.classes[worst]}: ${percent(all[worst])}`;
      cell.append(small);
    });
  }
}

function find() {
  const words = byId("table-find").value.toLowerCase();
  const lines = [...byId("class-table").tBodies[0].rows];
  for (const line of lines) {
    const names = line.cells[0].textContent + "\n" + (data.superclasses ?
      line.cells[1].textContent : "");
    line.hidden = !names.toLowerCase().includes(words);
  }
  const left = lines.filter((line) => !line.hidden).length;
  byId("table-count").textContent = words ? `${left} of ${lines.length} classes` : "";
}

function sortBy(table, head) {
  const column = head.cellIndex, body = table.tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  // Names sort as words, numbers as numbers; what has no number stays at the end.
  const key = (line) => line.cells[column].textContent;
  const words = column === 0 || head.classList.contains("words");
  const compare = (a, b) => {
    if (words) return (up ? 1 : -1) * key(a).localeCompare(key(b), undefined, {numeric: true});
    const [x, y] = [parseFloat(key(a)), parseFloat(key(b))];
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
    return up ? x - y : y - x;
  };
  body.append(...[...body.rows].sort(compare));
}

document.querySelectorAll("table.sortable").forEach((table) => {
  table.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th");
    if (head) sortBy(table, head);
  });
});
fillSides("table-side");
chart(["table-side", "table-measure"], fillClasses);
byId("table-find").addEventListener("input", find);
if (data.superclasses) {
  fillSides("superclass-side");
  chart(["superclass-side"], fillSuperclasses);
}
