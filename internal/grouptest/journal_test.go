package grouptest

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// journal collects what members log and lets a test wait for a line.
type journal struct {
	mu    sync.Mutex
	text  strings.Builder // guarded by mu
	moved chan struct{}   // guarded by mu; closed by the next line
}

func newJournal() *journal { return &journal{moved: make(chan struct{})} }

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.moved)
	j.moved = make(chan struct{})
	return j.text.Write(line)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (j *journal) length() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Len()
}

// await blocks until text was logged after the first so many bytes.
func (j *journal) await(t *testing.T, behind int, want string) {
	t.Helper()
	for ctx := Within(t, 30*time.Second); ; {
		j.mu.Lock()
		found, moved := strings.Contains(j.text.String()[behind:], want), j.moved
		j.mu.Unlock()
		if found {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			t.Fatalf("%q was not logged", want)
		}
	}
}
