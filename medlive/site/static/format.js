// Figures as the command prints them: ties go to the even digit.

/** With one decimal. */
export function oneDecimal(value) {
  const quarters = value * 4;
  let text = value.toFixed(1);
  if (Number.isInteger(quarters) && Math.abs(quarters % 2) === 1) {
    const tenths = Math.floor(value * 10);
    text = ((tenths % 2 ? tenths + 1 : tenths) / 10).toFixed(1);
  }
  return text === "-0.0" ? "0.0" : text;
}

/** A share as a percentage with one decimal. */
export const percent = (share) => (share === null ? "–" : oneDecimal(100 * share));

/** A figure from 0 up with two significant digits. */
export function twoDigits(value) {
  const [digits, exponent] = value.toExponential(60).split("e");
  const whole = Number(digits.slice(0, 1) + digits.slice(2, 3));
  const tie = /^50*$/.test(digits.slice(3)) && whole % 2 === 0;
  const rounded = tie ? Number(`${whole}e${Number(exponent) - 1}`) : Number(value.toPrecision(2));
  if (rounded && rounded < 1e-4) return rounded.toExponential().replace(/e-(\d)$/, "e-0$1");
  return String(rounded);
}
