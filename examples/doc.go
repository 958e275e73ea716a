// Package examples holds whole programs to read, run and change. Begin with
//
//	go run ./examples/quickstart    the story of a lock, in seven chapters
//	go run ./examples/fencedstore   a paused holder wakes up and is refused
//	go run ./examples/member -help  one process of a group that shares a lock
//
// The tests of this folder run each of them as what it is: a program in a
// process of its own, known by what it prints.
package examples
