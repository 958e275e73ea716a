package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-go/conclave/internal/wire"
)

// The search finds an order if and only if porcupine does, in short histories of a lock of which many are wrong.
func TestOrderSearch_AgreesWithPorcupine(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var legal, illegal, guessed int
	for range 3000 {
		ops := randomLockHistory(rng)
		var history []porcupine.Operation
		for _, op := range ops {
			history = append(history, op.forPorcupine())
		}
		order := newOrderSearch(lockModel(), ops).run()
		want := porcupine.CheckOperations(lockModel().forPorcupine(), history)
		switch {
		case want != (order != nil):
			t.Fatalf("porcupine finds an order: %t; the search: %v, of %v", want, order, ops)
		case !want:
			illegal++
			continue
		}
		if err := verifyOrder(lockModel(), ops, order); err != nil {
			t.Fatalf("%v: %v", order, err)
		}
		if verifyOrder(lockModel(), ops, order[:len(order)-1]) == nil {
			t.Fatalf("an order without %v is accepted", order[len(order)-1])
		}
		legal++
		for _, op := range ops {
			guessed += btoi(op.reply == nil)
		}
	}
	if legal < 500 || illegal < 500 || guessed < 500 {
		t.Errorf("%d histories with an order, with %d operations without an outcome, and %d without an order", legal, guessed, illegal)
	}
}

// randomLockHistory returns what three sessions request of a lock, and at times a wrong outcome.
func randomLockHistory(rng *rand.Rand) (ops []*operation) {
	var sessions [3]*sessionSpan
	for i := range sessions {
		sessions[i] = &sessionSpan{id: wire.ID{byte(i + 1)}, endRequested: forever, gracefulEndRequested: forever, endReported: never}
	}
	sessions[0].endRequested = 0 // it may end at any time
	var owner *sessionSpan
	fence := uint64(0)
	for i := range 4 + rng.IntN(6) {
		by, at := sessions[rng.IntN(len(sessions))], int64(10*i)
		op := &operation{
			session: by, incarnation: by.id, invokedAt: 2 * (at - rng.Int64N(25)), returnedAt: 2*(at+rng.Int64N(25)) + 1,
			command: &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Handle: 1}}}, reply: &wire.Reply{Code: wire.Code_LOCKED},
		}
		switch {
		case owner == nil:
			fence++
			owner, op.reply = by, &wire.Reply{Code: wire.Code_OK, Fence: fence, Holds: 1}
		case owner == by || rng.IntN(3) == 0:
			op.command = &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{Handle: 1, Fence: fence}}}
			if op.reply = (&wire.Reply{Code: wire.Code_NOT_HELD}); owner == by {
				owner, op.reply = nil, &wire.Reply{Code: wire.Code_OK, Fence: fence}
			}
		}
		switch rng.IntN(16) {
		case 0:
			op.reply.Fence += uint64(rng.IntN(3))
		case 1:
			op.reply.Code = []wire.Code{wire.Code_LOCKED, wire.Code_NOT_HELD, wire.Code_OK}[rng.IntN(3)]
		case 2, 3, 4:
			op.reply, op.returnedAt = nil, never
		}
		op.returnedTime = min(time.Duration(op.returnedAt), time.Minute)
		ops = append(ops, op)
	}
	return ops
}
