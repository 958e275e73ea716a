package conclavetest_test

import (
	"testing"

	"github.com/conclave-go/conclave/conclavetest"
)

// The test that docs/GUIDE.md shows.
func TestInvoices_HolderKilled(t *testing.T) {
	t.Parallel()
	group := conclavetest.Start(t, 3)
	old, err := group.Node(0).FencedLock("invoices").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	group.Kill(0)

	fence, err := group.Node(1).FencedLock("invoices").Lock(t.Context())
	if err != nil || fence <= old {
		t.Errorf("granted %v after %v: %v", fence, old, err)
	}
}
