/* Who this browser is to the node: what it may do now. */
import { deleteJson, getJson, postJson } from './api.ts';
import type { Scope, Session } from './types.ts';

export const session: { value: Session | null; problem: string | null } = $state({
  value: null,
  problem: null,
});

export function may(scope: Scope): boolean {
  return session.value?.scopes.includes(scope) ?? false;
}

/** Signed in, or at a node that lets everybody in. */
export function isInside(): boolean {
  return (session.value?.scopes.length ?? 0) > 0;
}

export async function sessionLoad(): Promise<void> {
  try {
    session.value = await getJson<Session>('/api/session');
    session.problem = null;
  } catch (problem) {
    session.problem = problem instanceof Error ? problem.message : String(problem);
  }
}

export async function signIn(how: { token: string } | { pass: string }): Promise<void> {
  session.value = await postJson<Session>('/api/session', how);
}

export async function signOut(): Promise<void> {
  await deleteJson('/api/session');
  await sessionLoad();
}

/** The node no longer takes the cookie: the token was revoked or has expired. */
export function sessionLost(): void {
  if (session.value) session.value = { ...session.value, signed_in: false, scopes: [] };
}
