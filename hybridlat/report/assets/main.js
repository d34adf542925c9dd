// Joins the drawings with the tables that are there without them.
const data = JSON.parse(document.getElementById("data").textContent);

const detailsOf = (net, place) => {
  const cell = net.cells[place.cell];
  const facts = [
    ["time", `${cell.latency} ${reachOf(cell)}`],
    ["share", `${percent(cell.share / cell.count)}${cell.count > 1 ? ` (${cell.share_text} for all ${cell.count} uses)` : ""}`],
    ["source", cell.source],
    ["limit", cell.limit ? `${cell.limit}, which explains ${percent(Math.min(cell.limit_share, 1), 0)} of the time` : null],
    ["work", cell.flop !== undefined ? `${quantity(cell.flop, "FLOP")}, ${quantity(cell.bytes, "B")} moved` : null],
  ].filter(([, value]) => value);
  return [
    html("h3", {}, place.path || cell.label),
    cell.what ? html("p", { class: "what" }, cell.what) : null,
    html("dl", {}, ...facts.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)])),
    cell.reason ? html("p", { class: "reason" }, `${cell.reason}.`) : null,
    html("ol", {}, ...cell.kernels.map((kernel, k) => html("li", {},
      html("b", {}, kernel.op), ` ${kernel.what}`,
      html("small", {}, place.names[k].join(", ") || "put in by the engine")))),
    html("code", {}, cell.signature),
  ].filter(Boolean);
};

const drawNetwork = (section) => {
  const net = data.networks[Number(section.dataset.network)];
  const rows = section.querySelectorAll("tr[data-cell]");
  const mark = (number) => rows.forEach((row) =>
    row.classList.toggle("current", Number(row.dataset.cell) === number));
  const root = section.querySelector(".graph");
  let graph = null;
  if (root && net.places.length) {
    root.hidden = false;
    const aside = root.querySelector("aside");
    graph = new CellGraph(root, net, (i) => {
      aside.replaceChildren(...detailsOf(net, net.places[i]));
      mark(net.places[i].cell);
    });
    const slowest = d3.maxIndex(net.places, (p) => net.cells[p.cell].share / net.cells[p.cell].count);
    graph.select(slowest, {});
    section.graph = graph;
  }
  const choose = (number) => {
    const place = net.places.findIndex((p) => p.cell === number);
    if (graph && place >= 0) graph.select(place, { reveal: true, focus: true });
  };
  section.querySelectorAll("button.show").forEach((button) => {
    button.disabled = !graph;
    button.addEventListener("click", () => {
      root.scrollIntoView({ block: "nearest" });
      choose(Number(button.closest("tr").dataset.cell));
    });
  });
  section.querySelectorAll(".timeline [data-cell]").forEach((box) =>
    box.addEventListener("click", () => choose(Number(box.dataset.cell))));
  const roofline = section.querySelector(".roofline");
  if (roofline && net.roofs) {
    roofline.hidden = false;
    drawRoofline(roofline.querySelector(".plot"), net, choose);
  }
};

const sections = [...document.querySelectorAll("section[data-network]")];
const drawn = new Set();
const drawOnce = (section) => {
  if (drawn.has(section)) return;
  drawn.add(section);
  drawNetwork(section);
};
// Of many networks the first ones are drawn while the page loads, the others one by one when the
// browser has time, or as soon as somebody scrolls to them or prints.
const LOADING_MS = 400;
const idle = window.requestIdleCallback || setTimeout;
const watcher = new IntersectionObserver((entries) => entries
  .filter((entry) => entry.isIntersecting).forEach((entry) => drawOnce(entry.target)));
const drawNext = () => {
  const next = sections.find((section) => !drawn.has(section));
  if (!next) return;
  drawOnce(next);
  idle(drawNext);
};
window.addEventListener("beforeprint", () => sections.forEach(drawOnce));

const drawOthers = () => {
  document.querySelectorAll("figure[data-curve]").forEach((figure) => {
    figure.hidden = false;
    drawCurve(figure.querySelector(".plot"),
      figure.dataset.curve.split(" ").map((i) => data.networks[i]),
      figure.dataset.over, figure.dataset.values.split(" ").map(Number));
  });
  const comparison = document.querySelector("figure.comparison");
  if (comparison) {
    comparison.hidden = false;
    drawComparison(comparison.querySelector(".plot"), data.networks);
  }
};
drawOthers();
const began = performance.now();
for (const section of sections) {
  if (performance.now() - began < LOADING_MS) drawOnce(section);
  watcher.observe(section);
}
idle(drawNext);

let waiting = null;
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    drawOthers();
    drawn.forEach((section) => {
      if (section.graph) section.graph.draw();
      const roofline = section.querySelector(".roofline");
      const net = data.networks[Number(section.dataset.network)];
      if (roofline && net.roofs) {
        drawRoofline(roofline.querySelector(".plot"), net, (number) => {
          const place = net.places.findIndex((p) => p.cell === number);
          if (section.graph && place >= 0) section.graph.select(place, { reveal: true });
        });
      }
    });
  }, 150);
});
