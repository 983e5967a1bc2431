// Intervals of means and of paired differences, Holm's correction and tie groups, as medlive.statistics has them: its
// modules `intervals` and `comparison` explain the constants.

import { randomSigns } from "./generator.js";
import { oneDecimal, twoDigits } from "./format.js";

const DOUBT = 0.1;
const LEAST_PAIRED = 6;
const LEAST_CLUSTERS = 30;
const LEAST_PAIRS = 10;
const LEAST_UNITS = 10;
const LEAST_POINTS = 2;
const EXACT_SIGNS = 16;
const RANDOM_SIGNS = 4999;

function logGamma(x) {
  let shift = 0;
  while (x < 15) {
    shift += Math.log(x);
    x += 1;
  }
  const y = 1 / (x * x);
  const series =
    (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y * (1 / 1188 - (y * 691) / 360360))))) / x;
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series - shift;
}

function betaFraction(a, b, x) {
  const tiny = 1e-300;
  let c = 1;
  let d = 1 / (1 - ((a + b) * x) / (a + 1) || tiny);
  let value = d;
  for (let m = 1; m < 10000; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    for (const term of [even, odd]) {
      d = 1 / (1 + term * d || tiny);
      c = 1 + term / c || tiny;
      value *= c * d;
    }
    if (Math.abs(c * d - 1) < 1e-15) break;
  }
  return value;
}

function incompleteBeta(a, b, x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  const front = Math.exp(
    logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x),
  );
  if (x < (a + 1) / (a + b + 2)) return (front * betaFraction(a, b, x)) / a;
  return 1 - (front * betaFraction(b, a, 1 - x)) / b;
}

function twoSidedP(t, freedom) {
  return t ? incompleteBeta(freedom / 2, 0.5, freedom / (freedom + t * t)) : 1;
}

const quantiles = new Map();

/** The t that Student's statistic exceeds, either way, with p = 0.05. */
function quantile(freedom) {
  if (freedom < 1) return NaN;
  if (!quantiles.has(freedom)) {
    let [low, high] = [0, 1e3];
    for (let i = 0; i < 60; i++) {
      const middle = (low + high) / 2;
      if (twoSidedP(middle, freedom) > 0.05) low = middle;
      else high = middle;
    }
    quantiles.set(freedom, high);
  }
  return quantiles.get(freedom);
}

/** To nine decimals, so that the order of a sum does not decide at a limit. */
const nine = (value) => Math.round(value * 1e9) / 1e9;

/** Why a mean has no interval, "" where it has one; `sums`: what each cluster adds, from 0 up, of `clusters` known. */
export function whyNone(sums, clusters, least = LEAST_CLUSTERS) {
  const few = "too few to say";
  if (clusters < least) return `${few}: ${clusters} threads, an interval needs ${least}`;
  let [points, squares] = [0, 0];
  for (const sum of sums) {
    points += sum;
    squares += sum * sum;
  }
  const units = nine(squares > 0 ? (points * points) / squares : 0);
  points = nine(points);
  if (points < LEAST_POINTS) {
    return `${few}: all that differs adds up to ${twoDigits(points)} full scores, an interval needs ${LEAST_POINTS}`;
  }
  if (units < LEAST_UNITS) {
    return `${few}: ${oneDecimal(units)} threads in effect make the figure, an interval needs ${LEAST_UNITS}`;
  }
  return "";
}

/** Whether a mean difference has an interval; `sizes`: what each cluster's differences add up to, without signs. */
export const pairHolds = (sizes, clusters) => whyNone(sizes, clusters, LEAST_PAIRS) === "";

/** p of a sum of differences by permutation of the clusters' signs; `start`: of the generator of random signs. */
export function signP(sums, start) {
  const differing = sums.filter((sum) => Math.abs(sum) > 1e-12);
  const n = differing.length;
  if (!n) return 1;
  let [total, largest] = [0, 0];
  for (const one of differing) {
    total += one;
    largest = Math.max(largest, Math.abs(one));
  }
  const observed = Math.abs(total) - 1e-9 * largest;
  const exact = n <= EXACT_SIGNS;
  const rows = exact ? 2 ** (n - 1) : RANDOM_SIGNS;
  const signs = exact ? null : randomSigns(start, rows * n);
  let hits = 0;
  for (let row = 0; row < rows; row++) {
    let sum = 0;
    for (let i = 0; i < n; i++) {
      const up = exact ? !((row >> i) & 1) : signs[row * n + i];
      sum += up ? differing[i] : -differing[i];
    }
    if (Math.abs(sum) >= observed) hits++;
  }
  return exact ? hits / rows : (1 + hits) / (1 + rows);
}

const clip = (x, low, high) => Math.min(Math.max(x, low), high);
const standardError = (spread, k) => (k > 1 ? spread * Math.sqrt(k / (k - 1)) : NaN);

function wilson(mean, error, clusters, z, size) {
  mean = clip(mean, 0, 1);
  const most = mean * (1 - mean);
  const variance = error * error;
  let n = variance > 1e-18 ? most / variance : 0 * error;
  const count = Math.min(mean, 1 - mean) * n;
  n = (count + DOUBT) / ((n > 0 ? count / Math.max(n, 1e-18) : 0) + (DOUBT * size) / clusters);
  const centre = (mean * n + (z * z) / 2) / (n + z * z);
  const half = (z / (n + z * z)) * Math.sqrt(n * most + (z * z) / 4);
  return [clip(centre - half, 0, mean), clip(centre + half, mean, 1)];
}

/** The 95 % interval of a mean; null where there are fewer than two clusters. */
export function meanBounds(mean, spread, clusters, unit) {
  const error = standardError(spread, clusters);
  const t = quantile(clusters - 1);
  const ends = unit ? wilson(mean, error, clusters, t, 1) : [mean - t * error, mean + t * error];
  return Number.isNaN(ends[0]) ? null : ends;
}

/** Standard deviation, the known values' own; and their mean. */
export function meanAndSpread(values) {
  let [n, sum] = [0, 0];
  for (const value of values) {
    if (!Number.isNaN(value)) {
      n++;
      sum += value;
    }
  }
  const mean = sum / n;
  let squares = 0;
  for (const value of values) {
    if (!Number.isNaN(value)) squares += (value - mean) * (value - mean);
  }
  return { mean, spread: Math.sqrt(squares / n) };
}

/** p of a mean difference, for no difference; `pair` as `pairOf` in board.js makes it. */
export function pairedP({ gain, loss, size, drawn, clusters, differing, unit }) {
  if (clusters < 2) return 1;
  const counted = differing > 0 ? Math.min(Math.max(differing, LEAST_PAIRED), clusters) : clusters;
  const [gains, losses] = drawn.map(meanAndSpread);
  const net = drawn[0].map((value, draw) => value - drawn[1][draw]);
  const whole = standardError(meanAndSpread(net).spread, clusters);
  let [products, n] = [0, 0];
  for (let draw = 0; draw < net.length; draw++) {
    const product = (drawn[0][draw] - gains.mean) * (drawn[1][draw] - losses.mean);
    if (!Number.isNaN(product)) {
      products += product;
      n++;
    }
  }
  const together = gains.spread * losses.spread;
  const correlation = together > 1e-18 ? Math.min(products / n / together, 0) : 0;
  const errors = [standardError(gains.spread, clusters), standardError(losses.spread, clusters)];
  const apart = (t) => {
    if (!unit) return Math.abs(gain - loss) > t * whole;
    const [aLow, aHigh] = wilson(gain, errors[0], clusters, t, size);
    const [bLow, bHigh] = wilson(loss, errors[1], clusters, t, size);
    const width = (x, y) => Math.sqrt(Math.max(x * x + y * y - 2 * correlation * x * y, 0));
    const low = gain - loss - width(gain - aLow, bHigh - loss);
    const high = gain - loss + width(aHigh - gain, loss - bLow);
    return low > 0 || high < 0;
  };
  let [below, above] = [0, 1e3];
  for (let i = 0; i < 50; i++) {
    const middle = (below + above) / 2;
    if (apart(middle)) below = middle;
    else above = middle;
  }
  return Math.max(2 ** Math.max(1 - clusters, -1000), twoSidedP(below, counted - 1));
}

/** Holm's step-down correction, in the order given. */
export function holm(values) {
  const order = values.map((_, place) => place).sort((a, b) => values[a] - values[b] || a - b);
  const corrected = new Array(values.length).fill(1);
  let highest = 0;
  order.forEach((place, rank) => {
    highest = Math.max(highest, Math.min(1, values[place] * (values.length - rank)));
    corrected[place] = highest;
  });
  return corrected;
}

/** Each model's tie group and the range of its rank; `scores`: [{name, mean}], `pairs`: {first, second, difference, p, holds}. */
export function tieGroups(scores, pairs) {
  const below = new Set();
  for (const pair of pairs) {
    // Signs alone show that two models differ, not which mean is higher.
    if (!pair.difference || !pair.holds || pair.p >= 0.05) continue;
    const [low, high] = pair.difference > 0 ? [pair.second, pair.first] : [pair.first, pair.second];
    below.add(`${low} ${high}`);
  }
  const order = scores.filter((s) => s.mean !== null);
  order.sort((a, b) => b.mean - a.mean || (a.name < b.name ? -1 : 1));
  const standings = new Map();
  let [leader, group] = [null, 0];
  for (const { place } of order) {
    if (leader === null || below.has(`${place} ${leader}`)) {
      leader = place;
      group++;
    }
    const better = order.filter((other) => below.has(`${place} ${other.place}`)).length;
    const worse = order.filter((other) => below.has(`${other.place} ${place}`)).length;
    standings.set(place, { group, best: 1 + better, worst: order.length - worse });
  }
  return standings;
}
