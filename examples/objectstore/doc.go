// Package objectstore is a recipe, to be copied into a program: an object in an S3-compatible store that
// a lock protects. A paused holder's late write is refused by the store, with a conditional PUT: If-Match.
//
// docs/FENCING.md has the reasons and the limits. object.go is all of it: [Object.Update]
// writes, [Object.Read] reads, and [CheckConditionalPut] finds a store that ignores the conditions.
//
// It is a module of its own, so that no program that uses the library links the client of a store. Its tests run
// a real server, the Versity S3 Gateway, which the module builds from source:
//
//	go -C examples/objectstore test -v .
package objectstore
