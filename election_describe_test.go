package conclave

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// silentAdmin is a member that a client asks and that does not answer.
type silentAdmin struct{ admin }

func (silentAdmin) status(ctx context.Context) (Status, error) {
	<-ctx.Done()
	return Status{}, ctx.Err()
}

// A leader is not withheld because no member describes it.
func TestLeader_NoMemberDescribesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, began := &Group{admin: silentAdmin{}}, time.Now()
		l := describeLeader(t.Context(), g, Leader{Name: "x", Fence: 7, Node: 5})
		if l.Member != (Member{ID: 5}) || l.Fence != 7 {
			t.Errorf("%+v", l)
		}
		members := describing(t.Context(), g) // as of a listing
		if l = members.lead(l); l.Member != (Member{ID: 5}) {
			t.Errorf("%+v", l)
		}
		if passed := time.Since(began); passed != 2*describeTime {
			t.Errorf("it took %v", passed)
		}
	})
}
