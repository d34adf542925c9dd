// Numbers as people read them, and small helpers that every drawing uses.
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}\u00a0%`;
const reachOf = ({ reach }) => (reach && !reach.startsWith("±") ? `(${reach})` : reach);
const cut = (text, letters) =>
  text.length <= letters ? text : `${text.slice(0, Math.max(letters - 1, 0))}…`;
const cutFront = (text, letters) =>
  text.length <= letters ? text : `…${text.slice(text.length - Math.max(letters - 1, 0)).replace(/^…+/, "")}`;
const quantity = (value, unit) => {
  const text = d3.format(".3~s")(value);
  return `${text.replace(/[^0-9.]+$/, "")} ${text.replace(/^[0-9.]+/, "")}${unit}`;
};
const html = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

// Texts in drawings are cut to the room they have; in front where the end tells them apart.
const pen = document.createElement("canvas").getContext("2d");
const textWidth = (text, size, weight = 400) => {
  pen.font = `${weight} ${size}px system-ui, -apple-system, "Segoe UI", sans-serif`;
  return pen.measureText(text).width;
};
const fitted = (text, room, size, { weight = 400, front = false } = {}) => {
  let letters = text.length;
  let shown = text;
  while (letters > 1 && textWidth(shown, size, weight) > room) {
    letters -= 1;
    shown = front ? cutFront(text, letters) : cut(text, letters);
  }
  return shown;
};
