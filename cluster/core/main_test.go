package core

import (
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tick          = 100 * time.Millisecond
	electionTicks = 10
)

var quiet = slog.New(slog.DiscardHandler)
