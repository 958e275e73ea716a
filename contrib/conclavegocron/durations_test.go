package conclavegocron_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/conclavegocron"
)

// A number without a unit is a number of nanoseconds.
func TestLocker_DurationsTooShort(t *testing.T) {
	for _, option := range []conclavegocron.Option{
		conclavegocron.HoldFor(15), conclavegocron.HoldFor(-time.Second), conclavegocron.Timeout(15), conclavegocron.Timeout(0),
	} {
		l := conclavegocron.NewLocker(nil, option)
		if _, err := l.Lock(t.Context(), "job"); !errors.Is(err, conclave.ErrInvalid) || !strings.Contains(err.Error(), "want at least 1ms") {
			t.Error(err)
		}
	}
}
