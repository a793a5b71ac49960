// The type of a state machine: a table of state → event → next state. build.ts, deploy.ts and dependency.ts define one each.

export type Machine<State extends string, Event extends string> = Readonly<
  Record<State, Readonly<Partial<Record<Event, State>>>>
>;

/** The state after `event`, or undefined if `event` is not allowed in `state`. */
export function nextState<State extends string, Event extends string>(
  machine: Machine<State, Event>,
  state: State,
  event: Event,
): State | undefined {
  return machine[state][event];
}

/** Whether no event leaves the state, other than those in `ignored`. */
export function isFinal<State extends string, Event extends string>(
  machine: Machine<State, Event>,
  state: State,
  ignored: readonly Event[] = [],
): boolean {
  return Object.keys(machine[state]).every(event => ignored.includes(event as Event));
}
