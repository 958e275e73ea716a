package sim

import (
	"log/slog"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a simulation allocates much garbage and keeps little
	goleak.VerifyTestMain(m)
}

var discardLogger = slog.New(slog.DiscardHandler)
