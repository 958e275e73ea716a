package sim

import (
	"log/slog"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a simulation allocates much garbage and keeps little
	// A search that is given up ends soon afterwards, which on a busy machine is later than goleak waits.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/anishathalye/porcupine.checkSingle"))
}

var discardLogger = slog.New(slog.DiscardHandler)
