package conclave

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestCredit_Taken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := newCredit([]byte(`{"Credit":10}`))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		written := make(chan error)
		write := func(n int) {
			_, err := creditWriter{ctx, io.Discard, c}.Write(make([]byte, n))
			written <- err
		}
		go write(15) // a write is not divided
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		go write(1)
		c.give(5)
		synctest.Wait()
		select {
		case <-written:
			t.Fatal("written without credit")
		default:
		}
		c.give(1)
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		go write(1)
		if err := <-written; !errors.Is(err, errNoCredit) || time.Since(began) != creditPatience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		go write(1)
		cancel(errSharedBackups)
		if err := <-written; !errors.Is(err, errSharedBackups) {
			t.Error(err)
		}
		c.give(math.MaxInt)
		c.give(math.MaxInt)
		if c.bytes != maxCredit {
			t.Errorf("a credit of %d", c.bytes)
		}
	})
}

// A client of an earlier build names none, and has no bound.
func TestCredit_OfRequest(t *testing.T) {
	for body, valid := range map[string]bool{
		"": true, `{"Credit":0}`: true, `{"Credit":1}`: true, `{"Credit":-1}`: false, `{"Credit":99999999}`: false, "x": false,
	} {
		c, err := newCredit([]byte(body))
		if (err == nil) != valid || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", body, err)
		}
		if valid && c == nil {
			c.give(1)
			if err := c.take(t.Context(), 1<<30); err != nil {
				t.Error(err)
			}
		}
	}
}
