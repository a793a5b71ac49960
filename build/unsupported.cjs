// Replaces the packages behind dockerode's ssh transport and BuildKit sessions, which Assay does not use and which
// cannot be bundled. Any use of them throws a clear error.
module.exports = new Proxy(
  {},
  {
    get(_target, name) {
      if (typeof name === 'symbol' || name === '__esModule') return undefined;
      return function unsupported() {
        throw new Error(
          `${name}: not part of this executable (Docker over ssh and BuildKit sessions are not supported)`,
        );
      };
    },
  },
);
