package grouptest

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/conclave-go/conclave"
)

// held blocks at its first write until it is released.
type held struct{ reached, released chan struct{} }

func (h held) Write(p []byte) (int, error) {
	select {
	case h.reached <- struct{}{}:
	default: // it has been reached before
	}
	<-h.released
	return len(p), nil
}

// Clients that read backups slowly keep the member from discarding what they read, so their number
// has a limit.
func TestClient_BackupsAtOnce(t *testing.T) {
	g := Start(t, 1, LongSessions)
	c := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	for i := range 40 { // more than the connection's queues
		_, err := c.KV().Put(Within(t, patience), fmt.Sprint(i), make([]byte, 512<<10))
		Must(t, err)
	}
	h := held{make(chan struct{}, 1), make(chan struct{})}
	results := make(chan error, 4)
	for range 4 {
		go func() { results <- c.Backup(Within(t, patience), h) }()
		<-h.reached
	}
	WantError(t, c.Backup(Within(t, patience), io.Discard), conclave.ErrBusy)
	close(h.released)
	for range 4 {
		Must(t, <-results)
	}
	err := c.Backup(Within(t, patience), io.Discard)
	for errors.Is(err, conclave.ErrBusy) { // the member ends the last one after its answer
		err = c.Backup(Within(t, patience), io.Discard)
	}
	Must(t, err)
}

// A client that reads as many backups as a member serves, and does not go on with them, keeps no
// other client from reading one: the latest of them ends.
func TestClient_BackupsOfOneClient(t *testing.T) {
	g := Start(t, 1, LongSessions)
	c, other := Dial(t, &conclave.ClientConfig{}, g.Nodes...), Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	for i := range 40 { // more than the connection's queues
		_, err := c.KV().Put(Within(t, patience), fmt.Sprint(i), make([]byte, 512<<10))
		Must(t, err)
	}
	h := held{make(chan struct{}, 1), make(chan struct{})}
	results := make(chan error, 4)
	for range 4 {
		go func() { results <- c.Backup(Within(t, patience), h) }()
		<-h.reached
	}
	Must(t, other.Backup(Within(t, patience), io.Discard))
	close(h.released)
	ended := 0
	for range 4 {
		if err := <-results; errors.Is(err, conclave.ErrBusy) {
			ended++
		} else {
			Must(t, err)
		}
	}
	if ended != 1 {
		t.Errorf("%d backups were ended", ended)
	}
}
