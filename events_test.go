package conclave_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Events that are dropped one after the other are worth one line in the log.
func TestEvents_DroppedLogLines(t *testing.T) {
	var lines bytes.Buffer // slog serializes writes; read after Close
	entered, block := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	c := grouptest.SoloConfig(t)
	c.Dir = ""
	c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	c.Events = &conclave.Events{LockLost: func(string, conclave.Fence) { enter(); <-block }}
	n, err := conclave.Open(grouptest.Bounded(t), &c)
	grouptest.Must(t, err)
	first := grouptest.MustSession(t, n, grouptest.Lasting())
	grouptest.MustLock(t, first.FencedLock("first"))
	grouptest.Must(t, n.CloseSession(t.Context(), first.ID()))
	<-entered // no call begins while the events of the others come
	s := grouptest.MustSession(t, n, grouptest.Lasting())
	for i := range 1200 { // 1,024 can wait
		grouptest.MustLock(t, s.FencedLock(fmt.Sprint(i)))
	}
	grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
	<-s.Done()
	grouptest.MustLock(t, n.FencedLock("after")) // the loop has reported everything
	close(block)
	grouptest.Must(t, n.Close(t.Context()))
	if n := strings.Count(lines.String(), "dropped"); n != 1 {
		t.Errorf("%d lines about dropped events, want 1", n)
	}
}
