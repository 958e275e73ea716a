// Package examples holds whole programs to read, run and change. These need one
// command each:
//
//	go run ./examples/quickstart           the story of a lock, in seven chapters
//	go run ./examples/fencedstore          a paused lock holder writes late and is refused
//	go run ./examples/semaphorerecipe      a semaphore from sessions and keys
//	go run ./examples/transfer             transfers between accounts, two locks at once
//
// Two are modules of their own, for what they link; docs/FENCING.md is about both:
//
//	go -C examples/postgres run .                      the paused holder again, and a PostgreSQL table
//	go -C examples/objectstore test -v .    a recipe for objects in an S3-compatible store
//
// Of these, start three processes; the documentation of each has the commands:
//
//	go doc ./examples/member               members share a lock
//	go doc ./examples/leaderelection       candidates elect a leader
//	go doc ./examples/ratelimit            workers share a limit on concurrent jobs
//	go doc ./examples/configwatch          processes watch shared configuration
//	go doc ./examples/cache                processes read shared keys from memory
//	go doc ./examples/exclusivejob         one process runs the job of each period
//	go doc ./examples/shardedworker        processes share the shards of a store
//
// The first, the third and the fourth run several members in one process, by the package
// examples/oneprocess.
//
// The tests of this folder run each of them as a process of its own and check its
// output.
package examples
