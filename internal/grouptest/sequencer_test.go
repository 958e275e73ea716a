package grouptest

import (
	"context"
	"testing"

	"github.com/conclave-go/conclave"
)

// A sequencer stays stale after each way of losing the key.
func TestSequencer_StaleAfterLoss(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	n := g.Nodes[0]
	k, ctx := n.KV(), Bounded(t)
	for _, test := range []struct {
		name string
		lose func(s *conclave.Session) error
	}{
		{"released", func(s *conclave.Session) error { _, err := k.Release(ctx, "key", nil, s.ID()); return err }},
		{"deleted", func(*conclave.Session) error { return k.Delete(ctx, "key") }},
		{"deleted with others", func(*conclave.Session) error { return k.DeletePrefix(ctx, "k") }},
		{"session closed", func(s *conclave.Session) error { return s.Close(ctx) }},
		{"session closed by force", func(s *conclave.Session) error { return g.Nodes[1].CloseSession(ctx, s.ID()) }},
	} {
		s := MustSession(t, n, Lasting())
		q := MustAcquireKey(t, k, "key", "", s).Sequencer()
		if err := g.Nodes[2].CheckSequencer(ctx, q); err != nil {
			t.Fatal(test.name, err)
		}
		if _, err := k.Txn(ctx, conclave.OpCheckSequencer(q), conclave.OpPut("by holder", []byte(test.name))); err != nil {
			t.Fatal(test.name, err)
		}
		if err := test.lose(s); err != nil {
			t.Fatal(test.name, err)
		}
		wantStale(t, ctx, g, q)
		if s.Err() == nil {
			MustAcquireKey(t, k, "key", "", s) // the same session, another acquisition
			wantStale(t, ctx, g, q)
			_ = s.Close(ctx)
		}
	}
	WantError(t, n.CheckSequencer(ctx, conclave.Sequencer{}), conclave.ErrInvalid)
}

func wantStale(t *testing.T, ctx context.Context, g *Group, q conclave.Sequencer) {
	t.Helper()
	for _, n := range g.Nodes {
		WantError(t, n.CheckSequencer(ctx, q), conclave.ErrStaleSequencer)
	}
	_, err := g.Nodes[1].KV().Txn(ctx, conclave.OpCheckSequencer(q), conclave.OpPut("by holder", []byte("late")))
	WantError(t, err, conclave.ErrStaleSequencer)
}
