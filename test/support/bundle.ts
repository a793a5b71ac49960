// Git bundles of working trees, as `POST …/snapshots` takes them.

/** A commit with an empty tree and no parents. Made with `git bundle create FILE refs/assay/snapshot`. */
export const smallBundle = Buffer.from(
  'IyB2MiBnaXQgYnVuZGxlCmE5ZGNkOTQwYmIxY2YyODMzNDJjZmIzMGE1NzI5MjAwNjk1Nzk1OWQgcmVmcy9hc3NheS9zbmFwc2hvdAoKUEFDSwAAAAIAAAACmwl4nCspSk1VMEmyMDJNSTYzMUpOMktNskw0MDNINTVJSrNIMbM0srBIS0pNNbE0MOFKLC3JyC9ScExJVLBJTEl0SK1IzC3ISdXLL0q3UzA0N4ACBW0QyZWcn5ubWVKSSrQGrvD8ouzMvHSFEqCruAAK2y2BIHicAwAAAAABLGFGNSr+9F8ItPNozjJeBYbopys=',
  'base64',
);
