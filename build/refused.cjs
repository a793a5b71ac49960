// Stands in for the packages behind dockerode's ssh transport and BuildKit sessions, which Assay does
// not use and which cannot be bundled: whoever reaches for one is told, instead of failing obscurely.
module.exports = new Proxy(
  {},
  {
    get(_target, name) {
      if (typeof name === 'symbol' || name === '__esModule') return undefined;
      return function refused() {
        throw new Error(
          `${name}: not part of this executable (Docker over ssh and BuildKit sessions are not supported)`,
        );
      };
    },
  },
);
