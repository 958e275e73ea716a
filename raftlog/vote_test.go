package raftlog

import (
	"testing"

	"github.com/conclave-go/conclave/storage"
)

// A vote is durable when the write returns, also in a term that was durable
// before. Given away again after a power cut it could elect a second leader.
func TestAVoteIsDurable(t *testing.T) {
	disk := vfsCrashable()
	_, log := openLog(t, storage.Options{FS: disk})
	if err := log.Bootstrap(members(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what       string
		term, vote uint64
	}{
		{"a new term", 2, 0}, {"a vote in it", 2, 3}, {"a term with a vote", 3, 1},
	} {
		mustCarryOut(t, log, Append{HardState: hardState(step.term, step.vote, 0)})
		_, found := openLog(t, storage.Options{FS: afterPowerCut(disk)})
		hard, _, err := found.InitialState()
		if err != nil || hard.GetTerm() != step.term || hard.GetVote() != step.vote {
			t.Errorf("%s: after a power cut the hard state is %v, %v", step.what, hard, err)
		}
	}
}
