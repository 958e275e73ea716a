package appcall

import (
	"bytes"
	"io"
	"sync"
)

// maxKeyLines bounds the lines that wait for the application's writers. A handshake has four.
const maxKeyLines = 1024

// KeyLog passes lines on to the KeyLogWriter of the application's TLS configurations. Package tls writes
// them with a mutex of the whole process held: a writer that does not return would keep each other
// handshake from going on, of this node or not, and one that panics would do so for ever. What the writers
// do not take in time is dropped. Calls.Wait waits for what waits.
type KeyLog struct {
	calls *Calls

	mu      sync.Mutex // held for moments, never while a function of the application runs
	waiting []keyLine  // guarded by mu
	running bool       // guarded by mu; a goroutine has taken a line
}

// KeyLog returns a KeyLog whose writers are called as other functions of the application.
func (c *Calls) KeyLog() *KeyLog { return &KeyLog{calls: c} }

type keyLine struct {
	to   io.Writer
	text []byte
}

// To returns what to configure instead of the application's writer, which may be nil.
func (l *KeyLog) To(w io.Writer) io.Writer {
	if w == nil {
		return nil
	}
	return keyWriter{l, w}
}

type keyWriter struct {
	log *KeyLog
	to  io.Writer
}

// Write implements io.Writer. It does not block.
func (w keyWriter) Write(line []byte) (int, error) {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) < maxKeyLines {
		l.waiting = append(l.waiting, keyLine{w.to, bytes.Clone(line)})
	}
	if !l.running {
		l.pass()
	}
	return len(line), nil
}

// pass has a goroutine pass the next line on. It is called with mu held.
func (l *KeyLog) pass() {
	l.running = len(l.waiting) > 0
	if !l.running {
		l.waiting = nil // frees the array
		return
	}
	next := l.waiting[0]
	l.waiting = l.waiting[1:]
	l.calls.after("KeyLogWriter", func() {
		defer func() { // also if the writer panics, or ends the goroutine
			l.mu.Lock()
			defer l.mu.Unlock()
			l.pass()
		}()
		_, _ = next.to.Write(next.text)
	})
}
