// Where cells and kernels are drawn: dagre lays out the kernels of an open cell and the cells of
// the network; the long chain that a network is then folds into columns, cell by cell.
const CELL = { width: 176, height: 44, head: 44, pad: 10, gap: 22, gutter: 46 };
const KERNEL = { width: 156, height: 34 };

// Links that decide the layout. Where there are many kernels, those that skip far ahead do not: in
// a dense block each kernel reads all before it, and a way round everything for each of these
// links takes minutes and shows nothing. They are drawn straight, behind the boxes.
const MANY = 40, FAR = 4;
const shortOf = (edges, count) => {
  if (count <= MANY) return edges;
  const rank = new Array(count).fill(0);
  for (const [from, to] of [...edges].sort((a, b) => a[1] - b[1])) {
    rank[to] = Math.max(rank[to], rank[from] + 1);
  }
  const nearest = new Map();
  for (const [from, to] of edges) {
    if (rank[from] > (nearest.get(to) ?? -1)) nearest.set(to, rank[from]);
  }
  return edges.filter(([from, to]) =>
    rank[to] - rank[from] <= FAR || nearest.get(to) === rank[from]);
};

const dagreOf = (nodes, edges, options) => {
  const graph = new dagre.graphlib.Graph();
  const ranker = nodes.length > MANY ? "tight-tree" : "network-simplex";
  graph.setGraph({ rankdir: "TB", marginx: 0, marginy: 0, ranker, ...options });
  graph.setDefaultEdgeLabel(() => ({}));
  nodes.forEach((node, i) => graph.setNode(String(i), { width: node.width, height: node.height }));
  shortOf(edges, nodes.length).forEach(([from, to]) => graph.setEdge(String(from), String(to)));
  dagre.layout(graph);
  const corners = nodes.map((node, i) => {
    const found = graph.node(String(i));
    return { x: found.x - node.width / 2, y: found.y - node.height / 2 };
  });
  const routes = edges.map(([from, to]) => graph.edge(String(from), String(to))?.points);
  return { corners, routes };
};

// An open cell: its kernels' corners within it, the ways between them, and the size that it takes.
const insideOf = (cell) => {
  const edges = [];
  cell.kernels.forEach((kernel, i) => kernel.reads.forEach((j) => j >= 0 && edges.push([j, i])));
  const { corners, routes } = dagreOf(
    cell.kernels.map(() => KERNEL), edges, { ranksep: 18, nodesep: 12 });
  const boxes = corners.map((corner) => ({ ...corner, ...KERNEL, column: 0 }));
  // Dozens of kernels under one another would be a thread: as wide as high reads better.
  if (Math.max(...boxes.map((b) => b.y)) > 900) foldToFit(boxes, 1200, 1000);
  const folded = boxes.some((b) => b.column > 0);
  const paths = edges.map(([from, to], i) =>
    folded || !routes[i] ? linkPath(boxes[from], boxes[to]) : routePath(routes[i]));
  const inner = Math.max(...boxes.map((b) => b.x + KERNEL.width));
  const bottom = folded ? 14 : 0;
  const height = Math.max(...boxes.map((b) => b.y + KERNEL.height)) + CELL.head + CELL.pad
    + 2 * bottom;
  return { corners: boxes.map((b) => ({ x: b.x, y: b.y + bottom })), paths, bottom, inner,
    width: Math.max(inner + 2 * CELL.pad, CELL.width), height };
};

// Boxes of all places, links between them, and the size of the whole for a panel of that size.
const layoutOf = (net, open, wide, tall) => {
  const boxes = net.places.map((place, i) => {
    const inside = open.has(i) ? insideOf(net.cells[place.cell]) : null;
    return inside ? { ...inside, inside } : { width: CELL.width, height: CELL.height };
  });
  const links = [];
  net.places.forEach((place, i) => place.reads.forEach((j) => j >= 0 && links.push([j, i])));
  dagreOf(boxes, links, { ranksep: CELL.gap, nodesep: CELL.gap }).corners.forEach((corner, i) => {
    Object.assign(boxes[i], corner, { column: 0 });
  });
  foldToFit(boxes, wide, tall);
  return { boxes, links, ...sizeOf(boxes) };
};

const sizeOf = (boxes) => ({
  width: Math.max(...boxes.map((b) => b.x + b.width)),
  height: Math.max(...boxes.map((b) => b.y + b.height)),
});

// As many columns as let the boxes be largest in a panel of that size; the fewer of equals.
const foldToFit = (boxes, wide, tall) => {
  let best = { scale: 0 };
  for (let columns = 1; columns <= 14; columns += 1) {
    const folded = boxes.map((box) => ({ ...box }));
    foldIntoColumns(folded, columns);
    const size = sizeOf(folded);
    const scale = Math.min(wide / (size.width + 16), tall / (size.height + 36), 1.15);
    if (scale > best.scale * 1.02) best = { scale, folded };
  }
  best.folded.forEach((box, i) => Object.assign(boxes[i], box));
};

const foldIntoColumns = (boxes, columns) => {
  const order = [...boxes].sort((a, b) => a.y - b.y);
  const limit = Math.max(...order.map((b) => b.y + b.height)) / columns;
  let start = 0, bottom = 0, column = 0;
  for (const box of order) {
    // A border between columns only where nothing drawn above reaches below it.
    if (box.y >= bottom && box.y + box.height - start > limit * 1.08 && box.y > start) {
      column += 1;
      start = box.y;
    }
    bottom = Math.max(bottom, box.y + box.height);
    box.column = column;
    box.y -= start;
  }
  let left = 0;
  for (let c = 0; c <= column; c += 1) {
    const members = order.filter((b) => b.column === c);
    const first = Math.min(...members.map((b) => b.x));
    members.forEach((b) => { b.x += left - first; });
    left = Math.max(...members.map((b) => b.x + b.width)) + CELL.gutter;
  }
};

const linkPath = (from, to) => {
  if (from.column === to.column) {
    return d3.linkVertical()({
      source: [from.x + from.width / 2, from.y + from.height],
      target: [to.x + to.width / 2, to.y],
    });
  }
  const x = to.x - CELL.gutter / 2;
  const [x0, y0] = [from.x + from.width / 2, from.y + from.height];
  const [x1, y1] = [to.x + to.width / 2, to.y];
  return `M${x0},${y0}v6Q${x0},${y0 + 10} ${x0 + 4},${y0 + 10}H${x - 5}Q${x},${y0 + 10} ${x},${y0 + 5}`
    + `V${y1 - 7}Q${x},${y1 - 12} ${x + 5},${y1 - 12}H${x1 - 4}Q${x1},${y1 - 12} ${x1},${y1 - 8}V${y1}`;
};

// What goes from kernel to kernel, along the way that dagre found around the others.
const routePath = d3.line().x((p) => p.x).y((p) => p.y).curve(d3.curveMonotoneY);
