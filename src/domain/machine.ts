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

/** The states that some event leaves. Events in `ignored`, which restart finished work, do not count. */
export function unfinishedStates<State extends string, Event extends string>(
  machine: Machine<State, Event>,
  ...ignored: Event[]
): State[] {
  return (Object.keys(machine) as State[]).filter(state =>
    Object.keys(machine[state]).some(event => !ignored.includes(event as Event)),
  );
}
