// NumPy's PCG64 and its bounded integers, bit for bit, and the weights that the bootstrap draws with them.

const MULTIPLIER = limbs("2360ed051fc65da44385df649fccf645");

/** A number of 128 bits in hexadecimal as eight limbs of 16 bits, the lowest first. */
function limbs(hex) {
  const digits = hex.padStart(32, "0");
  const out = [];
  for (let end = 32; end > 0; end -= 4) out.push(parseInt(digits.slice(end - 4, end), 16));
  return out;
}

/** PCG64 from the state and increment that `numpy.random.PCG64(seed)` starts with. */
export class Pcg64 {
  constructor({ state, increment }) {
    this.state = limbs(state);
    this.increment = limbs(increment);
    this.kept = null;
  }

  step() {
    const { state, increment } = this;
    const next = new Array(8);
    let carry = 0;
    for (let place = 0; place < 8; place++) {
      // Below 2^36, so that the sum is exact.
      let sum = increment[place] + carry;
      for (let i = 0; i <= place; i++) sum += state[i] * MULTIPLIER[place - i];
      next[place] = sum % 65536;
      carry = Math.floor(sum / 65536);
    }
    this.state = next;
  }

  /** The next 32 bits: of each 64, the lower half first. */
  next32() {
    if (this.kept !== null) {
      const kept = this.kept;
      this.kept = null;
      return kept;
    }
    this.step();
    const s = this.state;
    const low = ((s[0] ^ s[4]) | ((s[1] ^ s[5]) << 16)) >>> 0;
    const high = ((s[2] ^ s[6]) | ((s[3] ^ s[7]) << 16)) >>> 0;
    const turn = s[7] >>> 10;
    const [first, second] = turn < 32 ? [low, high] : [high, low];
    const by = turn % 32;
    const rotate = (a, b) => (by === 0 ? a : ((a >>> by) | (b << (32 - by))) >>> 0);
    this.kept = rotate(second, first);
    return rotate(first, second);
  }

  /** An integer from 0 to count - 1, by Lemire's method; count is below 2^21. */
  below(count) {
    if (count === 1) return 0;
    let product = this.next32() * count;
    let rest = product % 4294967296;
    if (rest < count) {
      const threshold = (4294967296 - count) % count;
      while (rest < threshold) {
        product = this.next32() * count;
        rest = product % 4294967296;
      }
    }
    return Math.floor(product / 4294967296);
  }
}

let kept = { count: -1, draws: -1, weights: null };

/** How often each draw takes each cluster: weights[cluster * draws + draw]. */
export function resamplingWeights(start, count, draws) {
  if (kept.count === count && kept.draws === draws) return kept.weights;
  const generator = new Pcg64(start);
  const weights = new Float64Array(count * draws);
  for (let draw = 0; draw < draws; draw++) {
    for (let i = 0; i < count; i++) weights[generator.below(count) * draws + draw]++;
  }
  kept = { count, draws, weights };
  return weights;
}

const drawn = { start: null, generator: null, signs: new Uint8Array(0), count: 0 };

/** The first `count` random signs, 1 for plus: the same for every shape that NumPy fills with them. */
export function randomSigns(start, count) {
  if (drawn.start !== start) Object.assign(drawn, { start, generator: new Pcg64(start), count: 0 });
  if (drawn.signs.length < count) {
    const longer = new Uint8Array(count);
    longer.set(drawn.signs);
    drawn.signs = longer;
  }
  for (; drawn.count < count; drawn.count++) drawn.signs[drawn.count] = drawn.generator.below(2);
  return drawn.signs;
}
