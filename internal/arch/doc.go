// Package arch holds the rules of this repository as tests: which package may
// import which, what the state machine must not touch, what a library must not
// do in its host's process, how long files and functions may be, which words are
// used, and that every document names files, tests and code that exist.
// docs/ARCHITECTURE.md has the reasons. A rule that fails prints what to write
// instead.
package arch
