package raftlog

import (
	"errors"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/storage"
)

// A group is deleted while a snapshot of it is received. Nothing of the snapshot remains, neither what was written before the log was erased
// nor what comes afterwards, and the logs of other groups go on.
func TestLog_EraseWhileStaging(t *testing.T) {
	_, log := openLog(t, storage.Options{Dir: t.TempDir()})
	bootstrap(t, log, 1)
	var logs []*Log
	for number := range uint32(2) {
		other, err := log.OpenGroup(number + 1)
		if err != nil {
			t.Fatal(err)
		}
		bootstrap(t, other, 1)
		logs = append(logs, other)
	}
	stage, err := logs[0].Stage()
	if err != nil {
		t.Fatal(err)
	}
	if err := stage.Put([]byte("before"), make([]byte, stageBatch)); err != nil {
		t.Fatal(err)
	}
	if err := Erase(logs[0], 2); err != nil {
		t.Fatal(err)
	}
	if err := stage.Put([]byte("behind"), make([]byte, stageBatch)); !errors.Is(err, ErrErased) {
		t.Error(err)
	}
	if err := stage.Discard(); !errors.Is(err, ErrErased) {
		t.Error(err)
	}
	if _, err := logs[0].Stage(); !errors.Is(err, ErrErased) {
		t.Error(err)
	}
	mustWrite(t, logs[1], Append{HardState: hardState(1, 0, 2), Entries: entries(2, 2, 1)})
	if numbers, err := Groups(log); err != nil || !slices.Equal(numbers, []uint32{2}) {
		t.Errorf("logs of the groups %v, %v", numbers, err)
	}
	if upTo, err := Erased(log); err != nil || upTo != 2 {
		t.Errorf("erased up to %d, %v", upTo, err)
	}
}
