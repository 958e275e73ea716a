package remote

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// A member that answers that the group is being deleted has answered: the client does not change members for it.
func TestProbed_Answers(t *testing.T) {
	for _, test := range []struct {
		failed   error
		answered bool
	}{
		{nil, true},
		{&RequestError{Failure: wire.Failure_FAILURE_NO_GROUP}, true},
		{&RequestError{Failure: wire.Failure_FAILURE_UNAVAILABLE}, false},
		{errors.New("the connection was lost"), false},
	} {
		l := &link{probing: true}
		g := &Group{link: l, ticks: 7}
		g.probed(l, test.failed)
		if answered := l.heardAt == 7; l.probing || answered != test.answered {
			t.Errorf("%v: answered %t", test.failed, answered)
		}
	}
}
