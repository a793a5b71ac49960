// What a state machine is: a table, state → event → next state. The tables stand in build.ts, deploy.ts and dependency.ts.

export type Machine<State extends string, Event extends string> = Readonly<
  Record<State, Readonly<Partial<Record<Event, State>>>>
>;

/** The state that `event` leads to from `state`, or undefined where the table has no such edge. */
export function nextState<State extends string, Event extends string>(
  machine: Machine<State, Event>,
  state: State,
  event: Event,
): State | undefined {
  return machine[state][event];
}

/** The states from which nothing but `beyond` leads on. */
export function isFinal<State extends string, Event extends string>(
  machine: Machine<State, Event>,
  state: State,
  beyond: readonly Event[] = [],
): boolean {
  return Object.keys(machine[state]).every(event => beyond.includes(event as Event));
}
