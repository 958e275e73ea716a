package transport

import (
	"context"
	"crypto/tls"
	"runtime"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

type keyLogFunc func()

func (f keyLogFunc) Write(p []byte) (int, error) { f(); return len(p), nil }

// Package tls calls a KeyLogWriter with a mutex of the process held. One that panics, ends its
// goroutine or does not return keeps no connection from being made: neither its own, nor others.
func TestTLS_KeyLogWriterFails(t *testing.T) {
	ca := newAuthority(t)
	for name, fail := range map[string]func(blocked <-chan struct{}){
		"panics":     func(<-chan struct{}) { panic("no space left") },
		"goexit":     func(<-chan struct{}) { runtime.Goexit() },
		"blocks":     func(blocked <-chan struct{}) { <-blocked },
		"is correct": func(<-chan struct{}) {},
	} {
		t.Run(name, func(t *testing.T) {
			blocked := make(chan struct{})
			defer close(blocked) // before Close, which waits for it
			called := make(chan struct{}, 100)
			logging := func() *tls.Config {
				cfg := ca.config(t)
				cfg.KeyLogWriter = keyLogFunc(func() { called <- struct{}{}; fail(blocked) })
				return cfg
			}
			chosen := ca.config(t)
			chosen.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return logging(), nil }
			for _, cfg := range []*tls.Config{logging(), chosen} {
				a := start(t, identity(1), listenTCP(t), withTLS(cfg))
				b := start(t, identity(2), listenTCP(t), withTLS(ca.config(t)))
				b.events.form = func(*wire.FormRequest) *wire.FormReply { return &wire.FormReply{Accepted: true} }
				a.events.form = b.events.form
				for range 3 {
					if _, err := b.Form(context.Background(), Target{Addr: a.addr}, &wire.FormRequest{}); err != nil {
						t.Error(err)
					}
					if _, err := a.Form(context.Background(), Target{Addr: b.addr}, &wire.FormRequest{}); err != nil {
						t.Error(err)
					}
				}
				<-called
			}
		})
	}
}
