package raftlog

import (
	"fmt"
	"testing"
)

// A power loss at any operation of the file system leaves a log as it was after
// one of the steps.
func TestPowerLoss_AtAnyOperation(t *testing.T) {
	for name, kept := range unsyncedKept {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				steps, recovered := script(seed, 40), recoveries{}
				for _, image := range recordScript(t, steps, kept, seed) {
					image.check(t, steps, recovered)
				}
			})
		}
	}
}
