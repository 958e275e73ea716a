package raftlog

import (
	"encoding/binary"
	"testing"

	"github.com/conclave-go/conclave/storage"
)

// A snapshot has nothing but pairs without a value. A stage writes them before they take more
// memory than its batch.
func TestStage_BoundsPairsInMemory(t *testing.T) {
	_, log := openLog(t, storage.Options{Dir: t.TempDir()})
	stage, err := log.Stage()
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint32(40_000) {
		if err := stage.Put(binary.BigEndian.AppendUint32(nil, i), nil); err != nil {
			t.Fatal(err)
		}
		if n := len(stage.changes); n*pairBytes > stageBatch {
			t.Fatalf("%d pairs in memory", n)
		}
	}
	if err := stage.Discard(); err != nil {
		t.Fatal(err)
	}
}
