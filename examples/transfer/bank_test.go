package main

import (
	"context"
	"errors"
	"testing"

	"github.com/conclave-go/conclave"
)

// beforeWrites is a Tracer that calls do before each write of keys, but not before those of do itself.
type beforeWrites struct{ do func() }

func (b *beforeWrites) Begin(_ context.Context, op conclave.Operation) conclave.Span {
	if do := b.do; op.Kind == conclave.CallWrite && do != nil {
		b.do = nil
		do()
		b.do = do
	}
	return nil
}

// openBank opens the bank of a node with that tracer.
func openBank(t *testing.T, tracer conclave.Tracer) *bank {
	t.Helper()
	n, err := conclave.Open(t.Context(), &conclave.Config{Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close(context.Background()) }) // nothing is held any more
	b := &bank{n}
	if err := b.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// lateWorker is a worker that has read the accounts 0 and 1 and then lost its set. It returns the write that follows,
// which moves 10.
func lateWorker(t *testing.T, b *bank) (write func() error) {
	t.Helper()
	s, err := b.node.NewSession(t.Context(), &conclave.SessionConfig{LockDelay: conclave.NoLockDelay})
	if err != nil {
		t.Fatal(err)
	}
	fence, err := s.LockSet([]string{account(0), account(1)}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.node.CloseSession(t.Context(), s.ID()); err != nil {
		t.Fatal(err)
	}
	return func() error {
		_, err := b.node.KV().Txn(t.Context(),
			conclave.OpPutFenced(account(0), amount(deposit-10), fence),
			conclave.OpPutFenced(account(1), amount(deposit+10), fence))
		return err
	}
}

// A late write comes between what a transfer reads and what it writes. The sum stays, whether the write is refused or not.
func TestTransfer_LateWrite(t *testing.T) {
	for skip, name := range []string{"before the first write", "before the second write"} {
		t.Run(name, func(t *testing.T) {
			var tracer beforeWrites
			b := openBank(t, &tracer)
			write := lateWorker(t, b)
			writes, late := 0, errors.New("the transfer has too few writes")
			tracer.do = func() {
				if writes++; writes == skip+1 {
					late = write()
				}
			}
			if err := b.transfer(t.Context(), account(0), account(2), 20); err != nil {
				t.Fatal(err)
			}
			tracer.do = nil
			if refused := errors.Is(late, conclave.ErrStaleFence); late != nil && !refused || refused != (skip > 0) {
				t.Errorf("the late write: %v, want it refused: %v", late, skip > 0)
			}
			if _, err := b.sum(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// An audit leaves its fence too: what it has counted does not change while it holds the accounts.
func TestSum_LateWrite(t *testing.T) {
	b := openBank(t, nil)
	write := lateWorker(t, b)
	if _, err := b.sum(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, conclave.ErrStaleFence) {
		t.Errorf("the late write: %v, want ErrStaleFence", err)
	}
}

// A late write comes while an audit reads. The audit begins again with what is there then.
func TestSum_LateWriteWhileReading(t *testing.T) {
	var tracer beforeWrites
	b := openBank(t, &tracer)
	write := lateWorker(t, b)
	late := 0
	tracer.do = func() {
		if late++; late == 1 {
			if err := write(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := b.sum(t.Context()); err != nil || late != 2 {
		t.Errorf("%d claims, %v; want a second one after the late write", late, err)
	}
}
