// Package examples holds whole programs to read, run and change. Begin with
//
//	go run ./examples/quickstart           the story of a lock, in seven chapters
//	go run ./examples/fencedstore          a paused holder wakes up and is refused
//	go run ./examples/semaphorerecipe      a semaphore out of sessions and keys
//
// Of these, start three processes; what stands on top of each says how:
//
//	go run ./examples/member -help          they share a lock
//	go run ./examples/leaderelection -help  one leads, and all know who
//	go run ./examples/ratelimit -help       so many jobs at once, and no more
//	go run ./examples/configwatch -help     all hear of each change
//	go run ./examples/exclusivejob -help    one runs the job, once in each period
//
// The tests of this folder run each of them as what it is: a program in a
// process of its own, known by what it prints.
package examples
