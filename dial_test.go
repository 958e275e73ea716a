package conclave_test

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestDial_Locks(t *testing.T) {
	n := grouptest.Alone(t)
	c := grouptest.Dial(t, &conclave.ClientConfig{SessionTTL: time.Second}, n)
	a, b := c.FencedLock("x"), n.FencedLock("x")
	first := grouptest.MustLock(t, a)
	info, err := b.Info(t.Context())
	if err != nil || !info.Held || info.Fence != first || info.Node != c.ID() {
		t.Fatalf("%+v %v; want client %v", info, err, c.ID())
	}
	info, err = a.Info(t.Context())
	if err != nil || !info.Held || info.Fence != first || info.Node != c.ID() {
		t.Fatalf("%+v %v; want client %v", info, err, c.ID())
	}
	grouptest.MustUnlock(t, a)
	if second := grouptest.MustLock(t, b); second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
	grouptest.MustUnlock(t, b)
}
