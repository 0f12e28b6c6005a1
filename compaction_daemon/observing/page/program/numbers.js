// Numbers and times as people read them.

const count = (value) => (value === null || value === undefined ? "unknown" : Number(value).toLocaleString("en"));
const counted = (value, one, many) => `${count(value)} ${value === 1 ? one : many || one + "s"}`;
function size(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  let value = bytes,
    unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value).toLocaleString("en") : value.toFixed(1)} ${units[unit]}`;
}
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 1) return seconds > 0 ? `${Math.round(seconds * 1000)} ms` : "0 s";
  for (const [unit, length] of [
    ["days", 86400],
    ["h", 3600],
    ["min", 60],
  ]) {
    if (seconds >= length * (unit === "days" ? 2 : 1))
      return `${(seconds / length).toFixed(seconds / length < 10 ? 1 : 0)} ${unit}`;
  }
  return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
}
// Rows in the unit of time in which they are at least one.
function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  const [unit, length] = [
    ["s", 1],
    ["min", 60],
    ["h", 3600],
  ].find(([, seconds]) => perSecond * seconds >= 1) || ["day", 86400];
  const value = perSecond * length;
  return `${value >= 100 ? count(Math.round(value)) : value.toFixed(1)} rows/${unit}`;
}
const pad = (number) => String(number).padStart(2, "0");
function clock(date, withSeconds) {
  return `${pad(date.getHours())}:${pad(date.getMinutes())}${withSeconds ? `:${pad(date.getSeconds())}` : ""}`;
}
const day = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
function moment(text) {
  if (!text) return "none";
  const date = new Date(text);
  return h("time", { datetime: text, title: text }, `${day(date)} ${clock(date, true)}`);
}
// A duration without decimals.
function about(seconds) {
  for (const [unit, length] of [
    ["days", 86400],
    ["h", 3600],
    ["min", 60],
  ]) {
    if (seconds >= length * (unit === "days" ? 2 : 1)) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}
function ago(text, now) {
  if (!text) return "never";
  const seconds = Math.max(0, (now - Date.parse(text)) / 1000);
  return h("time", { datetime: text, title: text }, seconds < 1 ? "now" : `${about(seconds)} ago`);
}
function percent(share) {
  return share && share < 0.01 ? "<1 %" : `${Math.round(share * 100)} %`;
}
// The owner of a lease: its host, its process, and the beginning of a long id of its own.
function owner(text) {
  const short = String(text).replace(/:([0-9a-f]{8})-[0-9a-f-]{27}$/, ":$1");
  return h("bdi", { title: short === text ? null : text }, short);
}
