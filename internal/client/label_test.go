package client

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// A label is submitted only once the group is at the level for it.
func TestLock_LabelBelowLevel(t *testing.T) {
	c, _ := newFake(t)
	lease := mustOpen(t, c, time.Hour)
	l := new(Lock)
	l.Init(c, LockConfig{Space: wire.Space_LOCK, Name: "x", Label: "run 1"})
	for level := uint32(1); level <= wire.LevelLabel; level++ {
		raise := &wire.RaiseLevel{Level: level}
		if _, err := c.Exec(t.Context(), &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: raise}}); err != nil {
			t.Fatal(err)
		}
		label := string(l.lockCommand(lease, nil, wanted{wait: true}).GetLock().GetLabel())
		if sent := label == "run 1"; sent != (level >= wire.LevelLabel) {
			t.Errorf("at level %d the label is %q", level, label)
		}
	}
}
