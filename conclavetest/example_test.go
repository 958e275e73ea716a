package conclavetest_test

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
)

var t *testing.T // of the test

// What does a program do when the member that holds its lock is isolated?
func ExampleStart() {
	ctx := t.Context()
	group := conclavetest.Start(t, 3)

	lock := group.Node(0).FencedLock("invoices")
	old, err := lock.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}

	group.Partition([]int{0})
	<-lock.Lost() // by member 0's own clock

	fence, err := group.Node(1).FencedLock("invoices").Lock(ctx)
	if err != nil || fence <= old {
		t.Fatalf("granted %v after %v: %v", fence, old, err)
	}

	group.Heal()
	if _, err := lock.Lock(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		t.Fatalf("the old holder does not know of its loss: %v", err)
	}
}
