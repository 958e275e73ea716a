package groups

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// Events name the group of a lost hold, of a node's as of a client's. LockLost, which has no group, is called as well, and before it.
func TestEvents_HoldLost(t *testing.T) {
	t.Parallel()
	const within = 30 * time.Second
	lost := make(chan string, 100)
	events := &conclave.Events{
		LockLost: func(name string, f conclave.Fence) { lost <- fmt.Sprintf("%s %d", name, f) },
		HoldLost: func(group, name string, f conclave.Fence) { lost <- fmt.Sprintf("%q %s %d", group, name, f) },
	}
	config := gt.SoloConfig(t)
	config.Events = events
	n, err := conclave.Open(gt.Within(t, within), &config)
	gt.Must(t, err)
	t.Cleanup(func() { gt.Kill(n) })
	create(t, n, "tenant")
	c := gt.Dial(t, &conclave.ClientConfig{Events: events}, n)
	for i, of := range []struct {
		group  *conclave.Group
		inside string
	}{{n.Group, ""}, {n.WithGroup("tenant"), "tenant"}, {c.Group, ""}, {c.WithGroup("tenant"), "tenant"}} {
		s, err := of.group.NewSession(gt.Within(t, within), nil)
		gt.Must(t, err)
		name := fmt.Sprint("lock ", i)
		f := gt.MustLock(t, s.FencedLock(name))
		gt.Must(t, of.group.CloseSession(gt.Within(t, within), s.ID()))
		for _, want := range []string{fmt.Sprintf("%s %d", name, f), fmt.Sprintf("%q %s %d", of.inside, name, f)} {
			if got := <-lost; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}
