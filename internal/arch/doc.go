// Package arch holds the house rules as tests: who may import whom, what the
// state machine may not touch, and what a library must not do in somebody
// else's process. docs/ARCHITECTURE.md says why; a rule that fails says what to
// write instead.
package arch
