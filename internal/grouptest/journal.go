package grouptest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// Journal collects what members log and lets a test wait for a line.
type Journal struct {
	mu    sync.Mutex
	text  strings.Builder // guarded by mu
	moved chan struct{}   // guarded by mu; closed by the next line
}

// NewJournal returns an empty journal.
func NewJournal() *Journal { return &Journal{moved: make(chan struct{})} }

// Write implements io.Writer for a handler of slog, which writes line by line.
func (j *Journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.moved)
	j.moved = make(chan struct{})
	return j.text.Write(line)
}

// Logger returns a logger that writes into the journal.
func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Length returns how many bytes were logged.
func (j *Journal) Length() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Len()
}

// Text returns what was logged.
func (j *Journal) Text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Find blocks until a line that contains want was logged after the first so many bytes,
// and returns the line.
func (j *Journal) Find(ctx context.Context, behind int, want string) (line string, err error) {
	for {
		j.mu.Lock()
		text, moved := j.text.String()[behind:], j.moved
		j.mu.Unlock()
		if before, after, found := strings.Cut(text, want); found {
			rest, _, _ := strings.Cut(after, "\n")
			return before[strings.LastIndexByte(before, '\n')+1:] + want + rest, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return "", fmt.Errorf("%q was not logged: %w", want, ctx.Err())
		}
	}
}

// Await is Find that fails the test if the line does not come.
func (j *Journal) Await(t testing.TB, behind int, want string) {
	t.Helper()
	_, err := j.Find(Bounded(t), behind, want)
	Must(t, err)
}
