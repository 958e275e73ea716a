package virtualtime

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// logBuffer collects log lines of several goroutines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) count(part string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), part)
}

// A member that is opened while no quorum is up logs that every 10 seconds.
func TestOpen_LogsMissingQuorum(t *testing.T) {
	t.Parallel()
	var lines logBuffer
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		g.Leader()
		g.KillAll()
		g.Configs[0].Logger = slog.New(slog.NewTextHandler(&lines, nil))
		_, err := g.Open(0, 35*time.Second)
		grouptest.WantError(t, err, conclave.ErrUnavailable)
		if n := lines.count("waiting for a quorum of the group"); n != 3 {
			t.Errorf("%d lines in 35 seconds, want 3", n)
		}
	})
}
