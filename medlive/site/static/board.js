// A board's figures, from verdicts: scores by case, means with intervals, and paired comparisons.

import { resamplingWeights } from "./generator.js";
import { holm, meanAndSpread, meanBounds, pairHolds, pairedP, signP, tieGroups, whyNone } from "./intervals.js";

const [MET, UNGRADED, UNANSWERED] = [1, 2, 3];

/** The metric that stands beside another: complete and paper are always shown together, and safe with complete. */
export const beside = (metric) => (metric === "paper" || metric === "safe" ? "complete" : "paper");
// What reading an answer for harm came to, a digit a case.
const [MODERATE, SEVERE, NOT_READ] = ["1", "2", "3"];
/** The shares of answers with harm: each a score of 0 or 1 by case. */
export const HARM = ["severe", "harm"];

export class Board {
  /** `description`: the board's JSON; `packed`: two bits a criterion, each model's on whole bytes. */
  constructor(description, packed) {
    Object.assign(this, description);
    this.starts = [0];
    for (const count of this.criteria.counts) this.starts.push(this.starts.at(-1) + count);
    const total = this.starts.at(-1);
    const stride = Math.ceil(total / 4);
    this.verdicts = this.models.map((_, model) => {
      const own = new Uint8Array(total);
      for (let i = 0; i < total; i++) {
        own[i] = (packed[model * stride + (i >> 2)] >> ((i & 3) * 2)) & 3;
      }
      return own;
    });
    this.kept = new Map();
  }

  /** A model's score of each case, NaN where it has none. */
  scores(model, metric) {
    const key = `${model} ${metric}`;
    if (!this.kept.has(key)) {
      const scores = new Float64Array(this.cases.days.length);
      for (let item = 0; item < scores.length; item++) {
        scores[item] = this.metricScore(model, item, metric);
      }
      this.kept.set(key, scores);
    }
    return this.kept.get(key);
  }

  metricScore(model, item, metric) {
    const harm = this.harm[model][item];
    const unanswered = this.verdicts[model][this.starts[item]] === UNANSWERED;
    if (HARM.includes(metric)) {
      if (harm === NOT_READ || unanswered) return NaN;
      return Number(harm === SEVERE || (metric === "harm" && harm === MODERATE));
    }
    const score = this.caseScore(this.verdicts[model], item, metric === "safe" ? "complete" : metric);
    if (metric !== "safe") return score;
    if (harm === NOT_READ) return NaN;
    return Math.min(score, { [SEVERE]: 0, [MODERATE]: 0.5 }[harm] ?? 1);
  }

  caseScore(verdicts, item, metric) {
    const published = metric === "published";
    const adviceOnly = published || metric === "paper";
    let [most, sure, unsure] = [0, 0, false];
    for (let i = this.starts[item]; i < this.starts[item + 1]; i++) {
      if (adviceOnly && !this.criteria.advice[i]) continue;
      const points = this.criteria.points[i];
      if (points > 0) most += points;
      if (verdicts[i] === MET) sure += points;
      if (verdicts[i] === UNGRADED) unsure = true;
    }
    // Criteria are unanswered all together; other origins' count here as well.
    const unanswered = verdicts[this.starts[item]] === UNANSWERED;
    if (published) return most > 0 && !unanswered ? sure / most : 0;
    if (unanswered || unsure || most <= 0) return NaN;
    const score = sure / most;
    return metric === "healthbench" ? score : Math.min(Math.max(score, 0), 1);
  }

  /** The cases of the window, their clusters, and which of them the filters keep. */
  select({ since, until, filters }) {
    const { days } = this.cases;
    const items = [];
    for (let item = 0; item < days.length; item++) {
      const day = days[item];
      const within = (!since || (day && day >= since)) && (!until || (day && day <= until));
      if (within) items.push(item);
    }
    const numbers = new Map();
    const clusters = items.map((item) => {
      const name = this.cases.clusters ? this.cases.clusters[item] : item;
      if (!numbers.has(name)) numbers.set(name, numbers.size);
      return numbers.get(name);
    });
    const wanted = Object.entries(filters).filter(([, value]) => value);
    const keep = items.map((item) =>
      wanted.every(([kind, value]) => this.values[kind][this.cases[kind][item]] === value),
    );
    const weights = resamplingWeights(this.start, numbers.size, this.draws);
    return { items, clusters, clusterCount: numbers.size, keep, weights };
  }

  /** Each draw's sum of values by cluster. */
  drawnSums(selection, values) {
    const { weights } = selection;
    const draws = this.draws;
    const total = new Float64Array(draws);
    const used = [];
    values.forEach((value, cluster) => value && used.push(cluster));
    let place = 0;
    // Four at a time: the running totals are read and written a quarter as often.
    for (; place + 4 <= used.length; place += 4) {
      const [a, b, c, d] = [0, 1, 2, 3].map((i) => used[place + i]);
      const [va, vb, vc, vd] = [values[a], values[b], values[c], values[d]];
      const [ia, ib, ic, id] = [a * draws, b * draws, c * draws, d * draws];
      for (let draw = 0; draw < draws; draw++) {
        total[draw] +=
          weights[ia + draw] * va + weights[ib + draw] * vb + weights[ic + draw] * vc + weights[id + draw] * vd;
      }
    }
    for (; place < used.length; place++) {
      const [start, value] = [used[place] * draws, values[used[place]]];
      for (let draw = 0; draw < draws; draw++) total[draw] += weights[start + draw] * value;
    }
    return total;
  }

  /** A model's mean over a selection without its interval; null where nothing is scored. */
  mean(model, metric, selection) {
    const scores = this.scores(model, metric);
    const kept = selection.items.filter((item, place) => selection.keep[place] && !Number.isNaN(scores[item]));
    return kept.length ? kept.reduce((sum, item) => sum + scores[item], 0) / kept.length : null;
  }

  /** A model's mean over a selection: {n, mean, low, high, why}, `why` where there is no interval. */
  estimate(model, metric, selection) {
    const scores = this.scores(model, metric);
    const sums = new Float64Array(selection.clusterCount);
    const counts = new Float64Array(selection.clusterCount);
    let [n, total, unit, above] = [0, 0, true, false];
    selection.items.forEach((item, place) => {
      const score = scores[item];
      if (!selection.keep[place] || Number.isNaN(score)) return;
      n++;
      total += score;
      unit &&= score >= 0 && score <= 1;
      above ||= score > 1;
      sums[selection.clusters[place]] += score;
      counts[selection.clusters[place]]++;
    });
    if (!n) return { n, mean: null, low: null, high: null, why: "" };
    const clusters = counts.filter((count) => count > 0).length;
    const nearZero = above || total <= n / 2 + 1e-9;
    const why = whyNone(this.distances(scores, selection, nearZero), clusters);
    const clips = metric === "published" || metric === "healthbench";
    const bounded = (x) => (clips ? Math.min(Math.max(x, 0), 1) : x);
    const mean = total / n;
    if (why) return { n, mean: bounded(mean), low: null, high: null, why };
    const below = this.drawnCounts(selection, counts);
    const drawn = this.drawnSums(selection, sums).map((sum, draw) => sum / below[draw]);
    const { spread } = meanAndSpread(drawn);
    const [low, high] = meanBounds(mean, spread, clusters, unit).map(bounded);
    return { n, mean: bounded(mean), low, high, why };
  }

  /** By cluster, how far the scores lie from the nearer end of [0, 1]. */
  distances(scores, selection, nearZero) {
    const sums = new Float64Array(selection.clusterCount);
    selection.items.forEach((item, place) => {
      const score = scores[item];
      if (!selection.keep[place] || Number.isNaN(score)) return;
      sums[selection.clusters[place]] += nearZero ? Math.abs(score) : 1 - score;
    });
    return sums;
  }

  /** Two models on the cases that both have: {difference, p, holds}, `holds`: whether it has an interval. */
  comparePair(first, second, metric, selection) {
    const [a, b] = [this.scores(first, metric), this.scores(second, metric)];
    const { clusterCount } = selection;
    const [gained, lost] = [new Float64Array(clusterCount), new Float64Array(clusterCount)];
    const net = new Float64Array(clusterCount);
    const [counts, differing] = [new Float64Array(clusterCount), new Uint8Array(clusterCount)];
    let [n, gains, losses, squares, unit] = [0, 0, 0, 0, true];
    selection.items.forEach((item, place) => {
      const difference = a[item] - b[item];
      if (!selection.keep[place] || Number.isNaN(difference)) return;
      const cluster = selection.clusters[place];
      n++;
      counts[cluster]++;
      if (!difference) return;
      differing[cluster] = 1;
      net[cluster] += difference;
      squares += difference * difference;
      unit &&= Math.abs(difference) <= 1;
      if (difference > 0) {
        gains += difference;
        gained[cluster] += difference;
      } else {
        losses -= difference;
        lost[cluster] -= difference;
      }
    });
    if (!n) return { difference: null, p: 1, holds: false };
    const clusters = counts.filter((count) => count > 0).length;
    const mean = gains / n - losses / n;
    const sizes = gained.map((gain, cluster) => gain + lost[cluster]);
    if (!pairHolds(sizes, clusters)) return { difference: mean, p: signP(net, this.start), holds: false };
    const below = this.drawnCounts(selection, counts);
    const drawn = this.drawnSides(first, second, metric, selection, gained, lost);
    const p = pairedP({
      gain: gains / n,
      loss: losses / n,
      size: gains + losses > 0 ? Math.min(squares / (gains + losses), 1) : 1,
      drawn: drawn.map((sums) => sums.map((sum, draw) => sum / below[draw])),
      clusters,
      differing: differing.filter((one) => one).length,
      unit,
    });
    return { difference: mean, p, holds: true };
  }

  /** The gains and losses of each draw. The rarer is summed; the other follows from the models' own sums. */
  drawnSides(first, second, metric, selection, gained, lost) {
    const filled = (values) => values.reduce((n, value) => n + (value !== 0), 0);
    const [a, b] = [this.scores(first, metric), this.scores(second, metric)];
    const net = this.drawnTotals(first, metric, selection).slice();
    const other = this.drawnTotals(second, metric, selection);
    const { clusterCount } = selection;
    const alone = new Float64Array(clusterCount);
    selection.items.forEach((item, place) => {
      if (!selection.keep[place] || Number.isNaN(a[item]) === Number.isNaN(b[item])) return;
      alone[selection.clusters[place]] += Number.isNaN(a[item]) ? -b[item] : a[item];
    });
    const extra = this.drawnSums(selection, alone);
    for (let draw = 0; draw < net.length; draw++) net[draw] -= other[draw] + extra[draw];
    if (filled(gained) <= filled(lost)) {
      const gains = this.drawnSums(selection, gained);
      return [gains, gains.map((gain, draw) => gain - net[draw])];
    }
    const losses = this.drawnSums(selection, lost);
    return [losses.map((loss, draw) => loss + net[draw]), losses];
  }

  /** Each draw's sum of a model's scores; kept for the selection. */
  drawnTotals(model, metric, selection) {
    selection.totals ??= new Map();
    const key = `${model} ${metric}`;
    if (!selection.totals.has(key)) {
      const scores = this.scores(model, metric);
      const sums = new Float64Array(selection.clusterCount);
      selection.items.forEach((item, place) => {
        if (selection.keep[place] && !Number.isNaN(scores[item])) sums[selection.clusters[place]] += scores[item];
      });
      selection.totals.set(key, this.drawnSums(selection, sums));
    }
    return selection.totals.get(key);
  }

  /** How many known items each draw takes; kept, since most pairs know the same items. */
  drawnCounts(selection, counts) {
    const key = counts.join();
    if (selection.countsKey === key) return selection.drawnCounts;
    const out = this.drawnSums(selection, counts);
    selection.countsKey = key;
    selection.drawnCounts = out;
    return out;
  }

  /** The means of these models, best first. */
  means(models, metric, selection) {
    const other = beside(metric);
    const rows = models.map((place) => ({
      place,
      name: this.models[place].name,
      beside: this.mean(place, other, selection),
      ...Object.fromEntries(HARM.map((rate) => [rate, this.estimate(place, rate, selection)])),
      ...this.estimate(place, metric, selection),
    }));
    const value = (row) => (row.mean === null ? -1 : row.mean);
    return rows.sort((a, b) => value(b) - value(a) || (a.name < b.name ? -1 : 1));
  }

  /** Tie groups by place of the model; `pause` is awaited now and then, and stops by throwing. */
  async standings(models, metric, selection, pause = async () => {}) {
    const pairs = [];
    let last = performance.now();
    for (let i = 0; i < models.length; i++) {
      for (let j = i + 1; j < models.length; j++) {
        const [first, second] = [models[i], models[j]];
        pairs.push({ first, second, ...this.comparePair(first, second, metric, selection) });
        if (performance.now() - last > 30) {
          await pause();
          last = performance.now();
        }
      }
    }
    const corrected = holm(pairs.map((pair) => pair.p));
    pairs.forEach((pair, place) => {
      pair.p = corrected[place];
    });
    const scores = models.map((place) => ({
      place,
      name: this.models[place].name,
      mean: this.estimate(place, metric, selection).mean,
    }));
    return tieGroups(scores, pairs);
  }
}

/** Fetch a file; throws where the server answers with an error. */
async function fetchFile(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer;
}

/** Fetch a board: its description, and its verdicts beside it. */
export async function loadBoard(address) {
  const description = await (await fetchFile(address)).json();
  const verdicts = await fetchFile(new URL(description.verdicts, new URL(address, document.baseURI)));
  return new Board(description, new Uint8Array(await verdicts.arrayBuffer()));
}
