// Package sim runs whole groups from seeds, in its tests: the production core,
// machine, raftlog and Pebble of some members on one goroutine, with a network, a
// disk, clocks and programs of which one seed decides everything, and checkers that
// know nothing of each other. docs/TESTING.md describes it.
//
//	go test ./internal/sim -run TestSeeds -seeds 300
package sim
