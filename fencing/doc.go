// Package fencing carries fences across process borders: from the holder of a lock to the
// resource that the lock protects, and into the resource's database.
//
// A holder that was paused and has lost its lock acts late, and no lock can prevent that. The
// resource prevents it: it remembers the largest fencing token (the fence) and refuses smaller
// ones. See [conclave.Guard].
//
//   - [Transport] sends fences with the requests of an HTTP client.
//   - [Middleware] refuses stale ones in an HTTP server.
//   - [SQL] keeps the largest fences in a table of PostgreSQL, MySQL, MariaDB or SQLite, and
//     compares in the transaction that writes.
//   - [File] keeps them in a directory, for files.
//   - The module contrib/fencinggrpc does for gRPC what Transport and Middleware do for HTTP.
//
// # The header
//
// Fences travel in the header Fencing-Token, as a list of name=fence:
//
//	Fencing-Token: invoices=7, shards%2C9=1:12
//
// The name is the lock's in UTF-8. Letters, digits and -._~/:@!$&'()* stand for themselves, any
// other byte is % and two hexadecimal digits. The fence is what [conclave.Fence.String] prints:
// a count, preceded by an epoch and a colon unless the epoch is 0. A lock may be named once.
//
// # Trust
//
// A fence is no credential. A client that sends too large a fence locks all holders out until
// the group's fences have passed it, so authenticate clients before [Middleware].
package fencing
