package latest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

func created(key string, value []byte) *wire.Change {
	return &wire.Change{Key: []byte(key), Value: value, Created: true}
}

func deleted(key string) *wire.Change { return &wire.Change{Key: []byte(key)} }

// A key that is deleted and created again all the time counts once.
func TestChanges_KeyThatComesBackCountsOnce(t *testing.T) {
	var g Changes
	value := bytes.Repeat([]byte("v"), 1<<10)
	for range 1000 {
		g.Put(deleted("k"))
		g.Put(created("k", value))
		if want := len("k") + len(value); g.Bytes() != want || len(g.list) != 1 {
			t.Fatalf("%d bytes of %d changes are counted, want %d of one", g.Bytes(), len(g.list), want)
		}
	}
}

// What keys that come and go take is that of the keys that exist at the same time.
func TestChanges_KeysThatComeAndGoTakeNothing(t *testing.T) {
	var g Changes
	for n := range 10_000 {
		g.Put(created(fmt.Sprint(n), []byte("1")))
		g.Put(deleted(fmt.Sprint(n - 8)))
	}
	if len(g.list) > 20 || len(g.keys.slots) > firstSlots || g.keys.used != len(g.Write()) {
		t.Errorf("%d positions and %d slots for %d changes", len(g.list), len(g.keys.slots), len(g.Write()))
	}
}
