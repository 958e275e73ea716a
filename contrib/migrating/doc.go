// Package migrating is the Go code of docs/MIGRATING.md: for each lock service the code before the migration,
// against that service's own client, and the code after it, on a conclave group.
//
// The text between a line //snippet:NAME and the next //snippet: line is a snippet. Each is a code block of the
// document, byte for byte, and the document has no other Go code. The tests check that, and run all the code that uses conclave.
//
// The package is a module of its own: programs that import conclave download none of these clients.
package migrating
