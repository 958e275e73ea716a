package conclave_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A job in use is not deleted. Deleted, it is as if it had never run, but for the fences.
func TestJob_Delete(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		j := n.Job("report")
		grouptest.Must(t, j.Delete(t.Context())) // there is none
		var first, again conclave.Fence
		grouptest.Must(t, j.Once(t.Context(), "monday", func(ctx context.Context, f conclave.Fence) error {
			first = f
			err := j.Delete(ctx)
			grouptest.WantError(t, err, conclave.ErrLocked)
			if text := fmt.Sprint(err); !strings.Contains(text, "under way") || !strings.Contains(text, "report") {
				t.Errorf("the error does not say why: %v", err)
			}
			return nil
		}))
		wantClosed(t, j.Once(t.Context(), "monday", succeed), conclave.JobDone)
		grouptest.Must(t, j.Delete(t.Context()))
		if info, err := j.Info(t.Context()); err != nil || info.Runs != nil {
			t.Errorf("%+v, %v after the deletion", info, err)
		}
		for info, err := range n.Jobs(t.Context(), "") {
			t.Errorf("%+v, %v is listed", info, err)
		}
		grouptest.Must(t, j.Once(t.Context(), "monday", func(_ context.Context, f conclave.Fence) error { again = f; return nil }))
		if again <= first {
			t.Errorf("fence %v, and %v of the run before the deletion", again, first)
		}
	})
}

// Every has its period even if the job is to be deleted.
func TestJob_DeleteWithinPeriod(t *testing.T) {
	j := grouptest.Alone(t).Job("sweep")
	ctx, cancel := context.WithCancel(t.Context())
	grouptest.WantError(t, j.Every(ctx, time.Hour, func(context.Context, conclave.Fence) error { cancel(); return nil }), context.Canceled)
	grouptest.WantError(t, j.Delete(t.Context()), conclave.ErrLocked)
}
