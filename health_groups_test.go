package conclave

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/replica"
)

// Each condition of a replica is found when it has lasted longer than a failover takes.
func TestGroupFault(t *testing.T) {
	const patience = 2 * time.Second
	late, soon := patience+time.Millisecond, patience
	for _, test := range []struct {
		status replica.Status
		health replica.Health
		want   string
	}{
		{replica.Status{Leader: 9, Stalled: soon}, replica.Health{Idle: soon, Contact: soon, Behind: soon}, ""},
		{replica.Status{Leader: 1}, replica.Health{}, ""},
		{replica.Status{}, replica.Health{Contact: soon}, ""},
		{replica.Status{Leader: 1}, replica.Health{Idle: late}, "has a loop that has not run for 2.001s"},
		{replica.Status{}, replica.Health{Contact: late}, "has no known leader for 2.001s"},
		{replica.Status{Leader: 9}, replica.Health{Contact: late}, "has not heard its leader for 2.001s"},
		{replica.Status{Leader: 1, Stalled: late}, replica.Health{}, "has an entry that is not committed for 2.001s"},
		{replica.Status{Leader: 9, Stalled: late}, replica.Health{}, "has a write to this member's disk under way for 2.001s"},
		{replica.Status{Leader: 9}, replica.Health{Behind: late}, "is behind its leader for 2.001s"},
	} {
		if got := groupFault(&test.status, &test.health, 1, patience); got != test.want {
			t.Errorf("%+v, %+v: %q, want %q", test.status, test.health, got, test.want)
		}
	}
}

// The text of the check is bounded, however many groups have a fault and however long their names are, and is printable.
func TestGroupsFault_Bounded(t *testing.T) {
	if text := groupsFault(nil, 3); text != "" {
		t.Error(text)
	}
	one := groupsFault([]faultyGroup{{"tenant", 7, "is behind"}}, 3)
	if !strings.Contains(one, "1 of 3 further groups: group \"tenant\" (number 7) is behind: ") {
		t.Error(one)
	}
	var faulty []faultyGroup
	for i := range 64 {
		faulty = append(faulty, faultyGroup{fmt.Sprintf("%d\x1b%s", i, strings.Repeat("x", 500)), uint32(i), "is behind"})
	}
	text := groupsFault(faulty, 64)
	if len(text) > 800 || strings.Contains(text, "\x1b") || !strings.Contains(text, "and 61 more") {
		t.Error(text)
	}
}
