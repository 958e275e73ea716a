package conclave_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// groupsOf returns the default groups of a node and of a client, and a further one of each.
func groupsOf(t *testing.T) map[string]*conclave.Group {
	t.Helper()
	n := grouptest.Alone(t)
	c := grouptest.Dial(t, &conclave.ClientConfig{}, n)
	further, err := n.CreateGroup(t.Context(), "tenant", conclave.GroupConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*conclave.Group{"node": n.Group, "client": c.Group, "group of node": further, "group of client": c.WithGroup("tenant")}
}

func last[V any](all iter.Seq2[V, error]) (last error) {
	for _, err := range all {
		last = err
	}
	return last
}

// A context that was done before the call is the only reason: nothing was sent, and whether there is a quorum is not known.
func TestError_ContextDoneBeforeCall(t *testing.T) {
	groups := groupsOf(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, g := range groups {
		for call, err := range map[string]error{
			"observe": last(g.Election("e").Observe(ctx)), "watch shards": last(g.Shards("s", 3).Watch(ctx)), "transfer": g.TransferLeadership(ctx, 0),
		} {
			if !errors.Is(err, context.Canceled) || errors.Is(err, conclave.ErrUnavailable) || errors.Is(err, conclave.ErrUnknown) {
				t.Errorf("%s, %s: %v", name, call, err)
			}
		}
	}
}

func TestTransferLeadership_NodeClosed(t *testing.T) {
	n := grouptest.Alone(t)
	further, err := n.CreateGroup(t.Context(), "tenant", conclave.GroupConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*conclave.Group{n.Group, further} {
		if err := g.TransferLeadership(t.Context(), 0); !errors.Is(err, conclave.ErrClosed) || errors.Is(err, conclave.ErrUnknown) {
			t.Error(err)
		}
	}
}

// A request behind a lock that lingers elsewhere has no position, and its error states none.
func TestLinger_ErrorOfWaitWithoutPosition(t *testing.T) {
	groups := groupsOf(t)
	if _, err := groups["node"].FencedLock("l", conclave.Linger(time.Minute)).Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := groups["client"].FencedLock("l", conclave.Linger(time.Minute)).Lock(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "queued") || strings.Contains(err.Error(), "position 0") {
		t.Error(err)
	}
}
