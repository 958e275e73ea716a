package raftlog

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave/internal/memdisk"
)

// A second power loss hits each operation of the recovery from a first one, and
// a third the recovery from the second. The log that finally opens is that of the
// first recovery, and accepts appends.
func TestPowerLoss_DuringRecovery(t *testing.T) {
	t.Parallel()
	steps, recovered := script(6, 30), recoveries{}
	first := recordScript(t, steps, 0, 6)
	rng := rand.New(rand.NewPCG(6, 6))
	step := 7
	if testing.Short() {
		step = 35
	}
	for at := 0; at < len(first); at += step {
		disk := first[at].disk
		want := recovered.from(t, first[at])
		for range 2 {
			images := recordRecovery(t, disk, rng)
			for _, image := range images {
				if got := recovered.from(t, image); got != want {
					t.Fatalf("image %d: first\n%s\nthen\n%s", at, want, got)
				}
			}
			if len(images) == 0 {
				t.Fatal("opening a log modifies nothing")
			}
			disk = images[rng.IntN(len(images))].disk
		}
		checkAppend(t, afterPowerLoss(disk))
	}
}

// recordRecovery opens a disk and returns the crash images.
func recordRecovery(t *testing.T, disk *vfs.MemFS, rng *rand.Rand) []crashImage {
	t.Helper()
	r := &crashRecorder{disk: memdisk.On(afterPowerLoss(disk)), rng: rng}
	store, _, err := openDisk(errorfs.Wrap(r.disk, r))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return r.take()
}

// checkAppend appends to the log on a disk and checks that this survives one
// more power loss.
func checkAppend(t *testing.T, disk *vfs.MemFS) {
	t.Helper()
	store, log, err := openDisk(disk)
	if err != nil {
		t.Fatal(err)
	}
	if !log.Bootstrapped() {
		bootstrap(t, log, 1)
	}
	hard, _, _ := log.InitialState()
	last, _ := log.LastIndex()
	term := hard.GetTerm() + 1
	mustWrite(t, log, Append{HardState: hardState(term, 1, hard.GetCommit()), Entries: entries(last+1, last+3, term)})
	want := mustReadLog(t, log)
	crashed := afterPowerLoss(disk)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if got := recoverLog(t, crashed); got != want {
		t.Fatalf("recovered\n%s\nacknowledged\n%s", got, want)
	}
}
