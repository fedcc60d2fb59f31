"use strict";
// Format numbers with their units for axes and tooltips.
const units = (() => {
  const digits = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
    return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 5 : 4 });
  };
  // The unit that suits a number: its factor and its name.
  const suiting = (scale, value) => {
    const fits = scale.sizes.filter(([from]) => Math.abs(value) >= from * 0.9995);
    return fits.length ? fits[fits.length - 1].slice(1) : scale.sizes[0].slice(1);
  };
  const shown = (scale, value) => {
    if (value === null || value === undefined) return "none";
    if (scale.categories) return scale.categories[value] ?? "another";
    const [size, suffix] = suiting(scale, value);
    return digits(value / size) + suffix;
  };
  // An axis has one unit, that of its largest number.
  const unit = (scale, values) => {
    if (scale.categories) return [1, ""];
    return suiting(scale, values.reduce((most, v) => Math.max(most, Math.abs(v)), 0));
  };
  const titled = (scale, suffix) => (suffix.trim() ? `${scale.label} (${suffix.trim()})` : scale.label);
  const finite = (values) => values.filter((v) => v !== null && Number.isFinite(v));

  return { digits, shown, unit, titled, finite };
})();
